//! The engine decides for layers and limiters. It has the store, the checked policies, the lists, and
//! the recorder, which counts decisions.
//!
//! A layer is an engine, the readers of a request, and its responses. A limiter is a handle on an
//! engine, and has methods of its own on it: `limiter/keyed.rs`, from a key to charges, and
//! `limiter/wait.rs`.

pub(crate) mod buckets;
mod build;
mod charges;
mod listed;
mod live;

use std::{sync::Arc, time::Duration};

use crate::{
    Decision, Lists, MemoryStore,
    admission::{Admission, WaitBound, refund::HeldCharges},
    charge::{Charge, Operation},
    holds::Holds,
    metrics::{Recorder, Snapshot},
    overrides::SeenOverrides,
    policy::Compiled,
    store::{checked::Checked, handle::StoreHandle},
};

pub use self::{build::LimiterBuilder, live::Replacement};
pub(crate) use self::{
    charges::Charges,
    listed::Listed,
    live::{HasEngine, Live},
};

/// Decides checks. Clones share the buckets, the lists and the counters.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) store: StoreHandle,
    pub(crate) policies: Arc<[Compiled]>,
    pub(crate) lists: Option<Lists>,
    /// The most callers of this process that wait for one bucket.
    max_waiting: usize,
    pub(crate) recorder: Arc<Recorder>,
}

impl Engine {
    pub(crate) fn policy(&self, name: &str) -> Option<&Compiled> {
        let mut policies = self.policies.iter();
        policies.find(|policy| *policy.name.text == *name)
    }

    /// Returns how many units a check charges, by its first policy.
    pub(crate) fn own_cost(&self) -> u64 {
        let first = self.policies.first();
        first.map_or(0, |policy| policy.demand.cost)
    }

    pub(crate) fn metrics(&self) -> Snapshot {
        self.recorder.snapshot(self.store.metrics())
    }

    /// Returns the only policy and the store, if a check is one call to a store in memory: all
    /// callers have the policy's own quota, which is enforced, and nothing is held. The rows "memory"
    /// of the benchmark show what that saves.
    pub(crate) fn direct(&self, overrides: &SeenOverrides) -> Option<(&Compiled, &MemoryStore)> {
        match (&*self.policies, self.store.memory()) {
            ([policy], Some(memory))
                if !policy.demand.quota.is_concurrency()
                    && !policy.enforcement.may_be_shadow()
                    && policy.demand.hold.is_none()
                    && overrides.policy(&policy.name.text).is_none() =>
            {
                Some((policy, memory))
            }
            _ => None,
        }
    }

    /// Asks the store, unless an operator has banned the caller or no policy charges it: then
    /// `units` pass.
    pub(crate) fn ask(&self, operation: Operation, charges: &Charges<'_>, units: u64) -> Checked {
        if let Some(decision) = charges.decision_by_bans(operation) {
            return Checked::Now(Ok(decision));
        }
        if charges.is_empty() {
            return Checked::Now(Ok(Decision::unlimited(units)));
        }
        let Charges {
            enforced, shadows, ..
        } = charges;
        let store = &self.store;
        store.check_with_shadows(operation, enforced, shadows, &self.recorder)
    }

    /// Returns the check that waits until these charges are admitted.
    pub(crate) fn admission(
        &self,
        charges: &Charges<'_>,
        max_wait: Duration,
        bound: WaitBound,
    ) -> Admission {
        let held = HeldCharges::new(&self.store, &charges.enforced);
        let shadows = charges.shadows.iter().cloned().map(Charge::into_owned);
        let (shadows, most) = (shadows.collect(), self.max_waiting);
        Admission::new(held, shadows, max_wait, bound, most, &self.recorder)
    }

    /// Returns the units that a decision about these charges holds.
    pub(crate) fn holds(&self, charges: &Charges<'_>, decision: &Decision) -> Option<Holds> {
        let terms = |charge: &Charge<'_>| {
            let policy = self.policy(charge.policy());
            let is_penalty = charge.demand.quota.penalty().is_some();
            // The settlements of a penalty are strikes.
            let is_debited = is_penalty && policy.is_some_and(|policy| policy.settles);
            (policy.map_or(0, |policy| policy.debt), is_debited)
        };
        let Charges {
            enforced, shadows, ..
        } = charges;
        let (store, recorder) = (&self.store, &self.recorder);
        Holds::new(store, enforced, shadows, decision, terms, recorder)
    }
}
