//! Extends the holds that outlive a lifetime.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::held::{Bucket, Held};
use crate::{
    Decision, StoreError,
    quota::hold::next_extension,
    store::{Answer, context::StoreContext},
    util::on_drop::OnDrop,
};

/// Starts the task that extends the holds of one store. It ends when there are none. `ended`: the
/// runtimes that ended before it did.
pub(super) fn start(context: &Arc<StoreContext>, runtime: &Handle, mut ended: Vec<Id>) {
    ended.push(runtime.id());
    let (own, here) = (Arc::clone(context), runtime.clone());
    let elsewhere = OnDrop::new(move || continue_elsewhere(&own, ended));
    let context = Arc::clone(context);
    runtime.spawn(async move {
        extend_all(&context, &here).await;
        elsewhere.cancel();
    });
}

async fn extend_all(context: &StoreContext, runtime: &Handle) {
    while let Some(due) = context.unsettled.next_due() {
        // Woken early if another hold is due before.
        let _ = timeout_at(due, context.unsettled.is_earlier.notified()).await;
        let due = context.unsettled.take_due(Instant::now());
        let mut together: HashMap<Bucket, Vec<Arc<Held>>> = HashMap::new();
        for held in due {
            if let Some(bucket) = held.begin_move() {
                together.entry(bucket).or_default().push(held);
            }
        }
        for (bucket, holds) in together {
            extend(holds, &bucket, runtime);
        }
    }
}

/// Starts another task, as the runtime of the task has ended before it did.
fn continue_elsewhere(context: &Arc<StoreContext>, ended: Vec<Id>) {
    let mut queue = context.unsettled.queue();
    let mut runtimes = queue
        .by_due
        .values()
        .filter_map(|held| held.runtime.as_ref());
    let other = runtimes.find(|runtime| !ended.contains(&runtime.id()));
    let Some(other) = other.cloned() else {
        queue.wakes_at = None;
        return;
    };
    drop(queue);
    start(context, &other, ended);
}

/// An extension without a reply is repeated after this time, or earlier.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Moves holds of one generation into the present one, together.
fn extend(holds: Vec<Arc<Held>>, bucket: &Bucket, runtime: &Handle) {
    let Some(first) = holds.first().cloned() else {
        return;
    };
    let units = holds.iter().map(|held| held.held());
    let units = units.fold(0, u64::saturating_add);
    // It is the same in each call, so the units move once. If another process extends units of the
    // bucket in between, the units of the first call lapse, and are charged.
    let number = next_extension();
    let (asker, generation, lifetime) = (Arc::clone(&first), bucket.generation, bucket.lifetime);
    let ask = move || asker.extend(units, generation, number);
    match ask() {
        Answer::Now(Ok(decision)) => end(&holds, &Ok(decision)),
        answer => {
            let holds: Arc<[Arc<Held>]> = holds.into();
            let unconfirmed = Arc::clone(&holds);
            // Holds whose move is never confirmed are left to lapse.
            let lost = OnDrop::new(move || unconfirmed.iter().for_each(Held::lost));
            first.store.spawn(runtime, async move {
                let answered = repeat(answer, ask, MAX_PAUSE.min(lifetime / 32));
                // Soon after that the generation lapses.
                if let Ok(answered) = timeout(lifetime / 2, answered).await {
                    lost.cancel();
                    end(&holds, &answered);
                }
            });
        }
    }
}

/// Waits for an answer, and asks again while a call without an answer may have run.
async fn repeat(
    mut answer: Answer<Decision>,
    ask: impl Fn() -> Answer<Decision>,
    pause: Duration,
) -> Result<Decision, StoreError> {
    let mut may_have_run = false;
    loop {
        let answered = answer.wait().await;
        if let Err(error) = &answered {
            may_have_run |= error.may_have_run() || error.is_foreign_reply();
        }
        if answered.is_ok() || !may_have_run {
            return answered;
        }
        sleep(pause).await;
        answer = ask();
    }
}

fn end(holds: &[Arc<Held>], answer: &Result<Decision, StoreError>) {
    match answer.as_ref().map(|decision| decision.policies().next()) {
        Ok(Some(policy)) => {
            let mut found = policy.held_by_request();
            for held in holds {
                found = held.moved(found, policy);
            }
        }
        Ok(None) => holds.iter().for_each(Held::lost),
        Err(_) => holds.iter().for_each(Held::not_moved),
    }
}
