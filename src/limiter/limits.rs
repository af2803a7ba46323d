//! What a limiter and its clones share, until it is replaced.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use super::charges::{Charges, charge};
use crate::{
    Decision, Key, List, Lists, MemoryStore, StoreError,
    charge::{Charge, Operation},
    error::StoreErrorKind,
    metrics::{Awaited, Recorder},
    overrides::SeenOverrides,
    policy::Compiled,
    store::{Answer, handle::StoreHandle},
};

/// The settings of a built limiter.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) store: StoreHandle,
    pub(super) policies: Arc<[Compiled]>,
    pub(super) lists: Option<Lists>,
    /// The most callers of this process that wait for one bucket.
    pub(super) max_waiting: usize,
    pub(super) recorder: Arc<Recorder>,
}

impl Limits {
    pub(super) fn check_now(&self, key: &Key) -> Result<Decision, StoreError> {
        let overrides = self.store.overrides();
        if let Some((policy, memory)) = self.direct(&overrides) {
            return Ok(self.take(policy, memory, key));
        }
        match self.ask(&overrides, Operation::Take, key, None) {
            Answer::Now(answer) => self.counted(answer),
            // Nothing was asked, so there is nothing to count.
            Answer::Later(_) => Err(StoreError::new(StoreErrorKind::WouldWait)),
        }
    }

    /// Returns the only policy and the store, if the store is in memory, nothing is held, the
    /// policy is enforced for all alike, and there are no lists.
    #[inline]
    pub(super) fn direct(&self, overrides: &SeenOverrides) -> Option<(&Compiled, &MemoryStore)> {
        if overrides.lists(self.lists.as_ref()).is_some() {
            return None;
        }
        match (&*self.policies, self.store.memory()) {
            ([policy], Some(memory))
                if overrides.policy(&policy.name.text).is_none()
                    && !policy.demand.quota.is_concurrency()
                    && !policy.enforcement.may_be_shadow()
                    && policy.demand.hold.is_none() =>
            {
                Some((policy, memory))
            }
            _ => None,
        }
    }

    /// Decides, and counts the decision.
    pub(super) fn take(&self, policy: &Compiled, memory: &MemoryStore, key: &Key) -> Decision {
        let decision = memory.take(&charge(policy, key));
        self.recorder.decided(&decision);
        decision
    }

    pub(super) fn ask(
        &self,
        overrides: &SeenOverrides,
        operation: Operation,
        key: &Key,
        units: Option<u64>,
    ) -> Answer<Decision> {
        if let Some(decision) = self.listed(overrides, operation, key, units) {
            return Answer::Now(Ok(decision));
        }
        let mut charges = self.charges(overrides, key, units);
        if operation == Operation::Refund {
            charges.leave_out_penalties();
        }
        if let Some(decision) = charges.decide_by_bans(operation) {
            return Answer::Now(Ok(decision));
        }
        if let Some(decision) = self.unlimited(operation, &charges, units) {
            return Answer::Now(Ok(decision));
        }
        if operation != Operation::Peek {
            if let Err(error) = charges.check(operation) {
                return Answer::Now(Err(error));
            }
        }
        self.send(operation, &charges)
    }

    /// Returns the decision of a check that no policy limits, because a control document has
    /// switched them off.
    pub(super) fn unlimited(
        &self,
        operation: Operation,
        charges: &Charges<'_>,
        units: Option<u64>,
    ) -> Option<Decision> {
        let is_off = charges.is_empty() && charges.is_any_off;
        is_off.then(|| {
            let first = self.policies.first();
            Decision::of_no_policies(passing(first, operation, units))
        })
    }

    #[inline]
    pub(super) fn send(&self, operation: Operation, charges: &Charges<'_>) -> Answer<Decision> {
        let Self {
            store, recorder, ..
        } = self;
        store.check_with_shadows(operation, &charges.enforced, &charges.shadows, recorder)
    }

    /// Returns the decision for a key on a list. A denied caller still pays for what it has used,
    /// and gets back what it has not.
    pub(super) fn listed(
        &self,
        overrides: &SeenOverrides,
        operation: Operation,
        key: &Key,
        units: Option<u64>,
    ) -> Option<Decision> {
        let lists = overrides.lists(self.lists.as_ref())?;
        let list = self.store.find_listed(&lists, key)?;
        let is_settled = matches!(operation, Operation::Debit | Operation::Refund);
        if is_settled && list == List::Deny {
            return None;
        }
        let mut policies = self.policies.iter();
        let on = policies.find(|policy| policy.is_on(overrides));
        let first = on.or(self.policies.first());
        Some(Decision::by_list(list, passing(first, operation, units)))
    }

    /// Counts an answer that is known.
    pub(super) fn counted(
        &self,
        answer: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        self.recorder.answered(&answer);
        answer
    }

    /// Returns how many units the bucket of a charge may owe.
    pub(super) fn debt(&self, charge: &Charge<'_>) -> u64 {
        let mut policies = self.policies.iter();
        let policy = policies.find(|policy| policy.name == charge.policy);
        policy.map_or(0, |policy| policy.debt)
    }

    pub(super) fn storage_keys(&self, key: &Key) -> Vec<String> {
        let overrides = self.store.overrides();
        let charges = self.policies.iter();
        let charges = charges.filter_map(|policy| self.charge(&overrides, policy, key, None));
        let keys = charges.filter_map(|asked| self.store.storage_key(&asked.charge));
        keys.collect()
    }
}

/// Returns how many units pass where no policy limits them: by default the cost of `policy`.
fn passing(policy: Option<&Compiled>, operation: Operation, units: Option<u64>) -> u64 {
    match operation {
        // Nothing was taken.
        Operation::Refund => 0,
        _ => units.unwrap_or_else(|| policy.map_or(0, |policy| policy.demand.cost)),
    }
}

/// Waits for an answer, and counts it. `decision` returns what is counted.
pub(super) async fn awaited<F: Future + Unpin>(
    recorder: Arc<Recorder>,
    mut later: F,
    decision: impl Fn(&F::Output) -> Result<&Decision, &StoreError>,
) -> F::Output {
    let mut awaited = Awaited::new(recorder);
    let answer = poll_fn(|cx| awaited.poll(|| Pin::new(&mut later).poll(cx))).await;
    awaited.ended(decision(&answer));
    answer
}
