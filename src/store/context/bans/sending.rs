//! Sends what the store has not confirmed, until it has.

use std::{
    borrow::Cow,
    mem, slice,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;

use super::{Bans, Id, State, Strikes};
use crate::{
    StoreError,
    charge::{Charge, Check, Demand, Operation},
    store::Store,
    util::{lock::lock, on_drop::OnDrop, runtime::runtime_with_timers},
};

/// What the store did not confirm is sent again after this time, and then after times that double.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// What is sent to the store.
struct Unsent {
    charge: Charge<'static>,
    store: Arc<dyn Store>,
    ban_ms: Option<u64>,
    strikes: u64,
    /// How many resets there were before.
    resets: u64,
}

impl Bans {
    /// Starts the task that sends what the store has not confirmed, unless there is one.
    pub(super) fn start_sending(self: &Arc<Self>) {
        let Some(runtime) = runtime_with_timers() else {
            return;
        };
        let mut state = lock(&self.state);
        if state.unconfirmed.is_empty() || mem::replace(&mut state.is_sending, true) {
            return;
        }
        drop(state);
        let bans = Arc::clone(self);
        let ended = Arc::clone(self);
        let ended = OnDrop::new(move || lock(&ended.state).is_sending = false);
        self.tasks.spawn(&runtime, async move {
            let _ended = ended;
            let mut pause = FIRST_PAUSE;
            loop {
                sleep(pause).await;
                let ids = bans.unconfirmed();
                if ids.is_empty() {
                    return;
                }
                pause = match bans.send_all(ids).await {
                    true => FIRST_PAUSE,
                    false => LONGEST_PAUSE.min(2 * pause),
                };
            }
        });
    }

    /// Drops what has ended. Returns the buckets about which there is anything to be sent.
    fn unconfirmed(&self) -> Vec<Id> {
        let now_ms = self.now_ms();
        let mut state = lock(&self.state);
        let State {
            known, unconfirmed, ..
        } = &mut *state;
        unconfirmed.retain(|id, unconfirmed| {
            let is_banned = known.get(id).is_some_and(|ban| ban.is_sent_at(now_ms));
            is_banned || !unconfirmed.strikes.are_none() && unconfirmed.until_ms > now_ms
        });
        let ids = unconfirmed.keys().copied().collect();
        self.record_counts(&state);
        ids
    }

    /// Sends what the store has not confirmed of these buckets. Returns whether it confirmed all.
    async fn send_all(self: &Arc<Self>, ids: Vec<Id>) -> bool {
        let mut are_confirmed = true;
        for id in ids {
            let Err(error) = self.send(id).await else {
                continue;
            };
            are_confirmed = false;
            if error.is_refused() {
                // It would refuse the others, too.
                break;
            }
        }
        are_confirmed
    }

    /// Returns whether a ban was reset after so many resets.
    fn is_forgotten_since(&self, resets: u64, id: Id) -> bool {
        let state = lock(&self.state);
        state.resets != resets && !state.known.contains_key(&id)
    }

    /// Takes out what is to be sent of a bucket.
    fn take_unsent(&self, id: Id) -> Option<Unsent> {
        let now_ms = self.now_ms();
        let mut state = lock(&self.state);
        let store = state.stores.iter().find_map(Weak::upgrade)?;
        let resets = state.resets;
        let ban = state.known.get(&id).filter(|ban| ban.is_sent_at(now_ms));
        let ban_ms = ban.map(|ban| ban.until_ms - now_ms);
        let unconfirmed = state.unconfirmed.get_mut(&id)?;
        Some(Unsent {
            strikes: mem::take(&mut unconfirmed.strikes.store),
            charge: unconfirmed.charge.clone(),
            store,
            ban_ms,
            resets,
        })
    }

    async fn send(self: &Arc<Self>, id: Id) -> Result<(), StoreError> {
        let Some(unsent) = self.take_unsent(id) else {
            return Ok(());
        };
        let Unsent {
            charge,
            store,
            ban_ms,
            strikes,
            resets,
        } = unsent;
        let ask = |operation, cost| {
            let demand = Demand::new(charge.demand.quota.clone(), cost);
            let charge = charge.with_demand(Cow::Owned(demand));
            store.check(&Check::new(operation, &[charge]))
        };
        let mut sent = Ok(());
        if strikes > 0 {
            match ask(Operation::Debit, strikes).wait().await {
                Ok(decision) => self.learn(slice::from_ref(&charge), &decision),
                Err(error) => {
                    let store = Strikes::of_failed(strikes, &error).store;
                    self.keep_strikes(&charge, Strikes { store, local: 0 });
                    sent = Err(error);
                }
            }
        }
        if let Some(ban_ms) = ban_ms {
            let decision = ask(Operation::Ban, ban_ms).wait().await?;
            if self.is_forgotten_since(resets, id) {
                // The ban may have overtaken the reset.
                return store.reset(slice::from_ref(&charge)).wait().await;
            }
            self.learn(slice::from_ref(&charge), &decision);
        }
        sent
    }
}
