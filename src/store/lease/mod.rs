//! Leases: units that are taken in advance, so that a hot key is decided without a round
//! trip to the server.
//!
//! If a caller is checked often, a batch of units is taken from its bucket in the background,
//! and its checks are decided from that batch while it lasts. The size of a batch depends on how
//! much the caller used just before, and on how much its bucket has left. Near the limit nothing is
//! leased, and each check goes to the server. Units that are not used soon are refunded. Only the
//! server denies.
//!
//! The cost: leased units are used a little later than they were taken. So in any span of time, a
//! key may be admitted the units that its bucket grants, and in addition those that all processes
//! held when the span began. Each process holds at most an eighth of what the bucket had left, and
//! no more than it used in a tenth of a second.

mod entry;
mod table;
#[cfg(test)]
mod tests;

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};

pub(crate) use self::table::Leases;
use self::{entry::RoundTrip, table::Id};
use super::{Answer, Store, StoreFuture, tasks::Tasks};
use crate::{
    Decision, Fingerprint, StoreError,
    charge::{Charge, Check, Operation},
    util::on_drop::OnDrop,
};

const SWEEP_EVERY: Duration = Duration::from_millis(50);

/// A store in front of another one. It decides from leased units if there are enough, and
/// asks the other store if not. Clones share the leases.
#[derive(Clone, Debug)]
pub(crate) struct LeasingStore {
    store: Arc<dyn Store>,
    pub(crate) leases: Arc<Leases>,
    tasks: Tasks,
    /// The longest that a round trip takes.
    timeout: Duration,
}

impl LeasingStore {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        leases: Leases,
        tasks: Tasks,
        timeout: Duration,
    ) -> Self {
        Self {
            store,
            leases: Arc::new(leases),
            tasks,
            timeout,
        }
    }

    /// Returns the entries of a bucket. Units are leased under the key of a caller, which an operator
    /// may name by its fingerprint.
    fn ids(&self, charge: &Charge<'_>) -> Vec<Id> {
        let mut ids = vec![self.leases.process.id(charge)];
        if let Some(named) = Fingerprint::of_key(charge.key.as_bytes()) {
            let letter = charge.demand.quota.letter();
            ids.extend(self.leases.ids_of(|leased| {
                leased.policy == charge.policy
                    && leased.demand.quota.letter() == letter
                    && self.store.fingerprint(&leased.key) == named
            }));
        }
        ids
    }

    /// Refunds all leased units. The store leases none from now on.
    pub(crate) async fn close(&self) {
        for (id, trip) in self.leases.close() {
            self.send(id, trip);
        }
        self.leases.wait_for_round_trips(None).await;
    }

    fn send(&self, id: Id, trip: RoundTrip) {
        let trips = self.clone().make_round_trips(id, trip);
        self.tasks.spawn(&self.leases.runtime, trips);
    }

    /// Makes round trips, and sends each once. If a reply is lost, its units stay taken and are
    /// not used.
    async fn make_round_trips(self, id: Id, trip: RoundTrip) {
        let mut next = Some(trip);
        while let Some(trip) = next {
            let charges = slice::from_ref(&trip.charge);
            let answer = self.store.check(&Check::new(trip.operation, charges));
            let answer = answer.wait().await;
            next = self.leases.end_round_trip(id, trip, &answer);
        }
    }

    /// Sweeps as long as any caller has an entry.
    async fn sweep(self) {
        loop {
            sleep(SWEEP_EVERY).await;
            let Some(trips) = self.leases.sweep() else {
                return;
            };
            for (id, trip) in trips {
                self.send(id, trip);
            }
        }
    }
}

impl LeasingStore {
    pub(crate) fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let Some(charge) = leased_charge(check) else {
            return self.store.check(check);
        };
        let id = self.leases.process.id(charge);
        let (grant, trip, begins_sweeping) = self.leases.look_up(id, charge);
        if let Some(trip) = trip {
            self.send(id, *trip);
        }
        if begins_sweeping {
            self.leases.runtime.spawn(self.clone().sweep());
        }
        if let Some(grant) = grant {
            return Answer::Now(Ok(grant.decision(charge)));
        }
        let (leases, cost) = (Arc::clone(&self.leases), charge.demand.cost);
        let answer = self.store.check(check);
        answer.map(move |answer| {
            leases.record_answer(id, cost, &answer);
            answer
        })
    }

    /// Resets buckets, and voids their leases if the reset may have run.
    ///
    /// During a reset no round trip is under way, so each round trip is known to concern the
    /// old bucket or the new one. Otherwise a void lease could have taken units from the new
    /// bucket, and a refund of old units could be granted again. A round trip is waited for
    /// until its deadline.
    pub(crate) fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        match self.store.reset(charges) {
            Answer::Later(answer) => {
                let ids = charges.iter().flat_map(|charge| self.ids(charge)).collect();
                let leases = Arc::clone(&self.leases);
                Answer::Later(Box::pin(reset(leases, ids, answer, self.timeout)))
            }
            // Nothing was reset.
            now => now,
        }
    }
}

/// Waits for the round trips of these buckets, then for `answer`, which resets them. Their
/// leases are void then, unless nothing was reset. No round trip of them begins meanwhile.
async fn reset(
    leases: Arc<Leases>,
    ids: Vec<Id>,
    answer: StoreFuture<()>,
    longest_trip: Duration,
) -> Result<(), StoreError> {
    let may_have_run = AtomicBool::new(false);
    leases.begin_resets(&ids);
    let _end = OnDrop::new(|| leases.end_resets(&ids, may_have_run.load(Ordering::Relaxed)));
    let _ = timeout(longest_trip, leases.wait_for_round_trips(Some(&ids))).await;
    may_have_run.store(true, Ordering::Relaxed);
    let answer = answer.await;
    if let Err(error) = &answer {
        // A connection whose replies are out of step may have run it.
        let may_run = error.may_have_run() || error.is_foreign_reply();
        may_have_run.store(may_run, Ordering::Relaxed);
    }
    answer
}

/// Returns the charge of a check that leased units may decide.
fn leased_charge<'a>(check: &Check<'a>) -> Option<&'a Charge<'a>> {
    match check.charges() {
        [charge] if check.operation() == Operation::Take && is_leased(charge) => Some(charge),
        _ => None,
    }
}

/// Whether a charge may be decided from leased units. A charge with an overdraft or a cost of
/// 0 needs the present state of the bucket.
fn is_leased(charge: &Charge<'_>) -> bool {
    let demand = &charge.demand;
    charge.leases && demand.cost != 0 && demand.overdraft == 0 && demand.quota.leases()
}
