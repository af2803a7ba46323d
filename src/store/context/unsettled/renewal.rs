//! Extends the holds that outlive a lifetime.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::held::{Bucket, Held};
use crate::{
    Decision, StoreError,
    quota::hold::next_extension,
    store::{Answer, context::StoreContext},
};

/// The task that extends the holds of one store. It ends when there are none.
pub(super) struct Renewal {
    context: Arc<StoreContext>,
    runtime: Handle,
    /// The runtimes that ended before it did.
    ended: Vec<Id>,
    is_over: bool,
}

impl Renewal {
    pub(super) fn start(context: &Arc<StoreContext>, runtime: &Handle, ended: Vec<Id>) {
        let task = Self {
            context: Arc::clone(context),
            runtime: runtime.clone(),
            ended,
            is_over: false,
        };
        runtime.spawn(task.run());
    }

    async fn run(mut self) {
        while let Some(due) = self.context.unsettled.next_due() {
            // Woken early if another hold is due before.
            let _ = timeout_at(due, self.context.unsettled.is_earlier.notified()).await;
            let due = self.context.unsettled.take_due(Instant::now());
            let mut together: HashMap<(Bucket, Duration), Vec<Arc<Held>>> = HashMap::new();
            for held in due {
                if let Some(bucket) = held.begin_move() {
                    together.entry(bucket).or_default().push(held);
                }
            }
            for (((_, _, generation), lifetime), holds) in together {
                let extension = Extension {
                    holds,
                    generation,
                    number: next_extension(),
                    may_have_run: false,
                };
                extension.send(lifetime, &self.runtime);
            }
        }
        self.is_over = true;
    }
}

impl Drop for Renewal {
    /// Starts another task if its runtime ended before it did.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut ended = mem::take(&mut self.ended);
        ended.push(self.runtime.id());
        let mut queue = self.context.unsettled.queue();
        let mut runtimes = queue.by_due.values().filter_map(|held| held.runtime());
        let other = runtimes.find(|runtime| !ended.contains(&runtime.id()));
        let other = other.cloned();
        if other.is_none() {
            queue.wakes_at = None;
        }
        drop(queue);
        if let Some(runtime) = other {
            Self::start(&self.context, &runtime, ended);
        }
    }
}

/// An extension without a reply is repeated after this time, or earlier.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Holds of one generation that are moved into the present one together.
struct Extension {
    holds: Vec<Arc<Held>>,
    generation: u64,
    /// It is the same in each call, so the units move once. If another process extends units of the
    /// bucket in between, the units of the first call lapse, and are charged.
    number: u64,
    /// A call without a reply may have moved them.
    may_have_run: bool,
}

impl Extension {
    fn send(mut self, lifetime: Duration, runtime: &Handle) {
        let Some(first) = self.holds.first().cloned() else {
            return;
        };
        match self.ask(&first) {
            Answer::Now(Ok(decision)) => self.answered(&Ok(decision)),
            answer => {
                let asker = Arc::clone(&first);
                first.spawn(runtime, async move {
                    let pause = MAX_PAUSE.min(lifetime / 32);
                    let answered = self.wait_for(answer, &asker, pause);
                    // Soon after that the generation lapses.
                    if let Ok(answered) = timeout(lifetime / 2, answered).await {
                        self.answered(&answered);
                    }
                });
            }
        }
    }

    /// Waits for an answer, and asks again while a call without an answer may have run.
    async fn wait_for(
        &mut self,
        mut answer: Answer<Decision>,
        asker: &Held,
        pause: Duration,
    ) -> Result<Decision, StoreError> {
        loop {
            let answered = answer.wait().await;
            self.may_have_run |= answered.as_ref().is_err_and(may_have_run);
            if answered.is_ok() || !self.may_have_run {
                return answered;
            }
            sleep(pause).await;
            answer = self.ask(asker);
        }
    }

    fn ask(&self, first: &Held) -> Answer<Decision> {
        let units = self.holds.iter().map(|held| held.held());
        let units = units.fold(0, u64::saturating_add);
        first.extend(units, self.generation, self.number)
    }

    fn answered(&mut self, answer: &Result<Decision, StoreError>) {
        let holds = mem::take(&mut self.holds);
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
}

fn may_have_run(error: &StoreError) -> bool {
    error.may_have_run() || error.is_foreign_reply()
}

impl Drop for Extension {
    /// The holds whose move was never confirmed are left to lapse.
    fn drop(&mut self) {
        self.holds.iter().for_each(Held::lost);
    }
}
