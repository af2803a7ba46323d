//! Decides a request.

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use http::Response;
use smallvec::SmallVec;

use super::{
    asked::{Asked, PartitionKeys, Wait},
    denied::Denial,
    rules::Rule,
    settings::Settings,
    settling::Settling,
};
use crate::{
    Decision, DenialReason, Key, MemoryStore, RequestHead,
    admission::WaitBound,
    charge::{Charge, Operation},
    engine::Charges,
    holds::Holds,
    key::KeyError,
    overrides::SeenOverrides,
    policy_name::Name,
    store::checked::Checked,
};

/// The next step for a request.
#[allow(clippy::large_enum_variant)] // It is taken apart at once.
pub(super) enum Next {
    Forward(Decision, Option<Holds>),
    /// The denial is recorded already.
    Deny(Response<Bytes>),
    Wait(Asked),
}

impl Settings {
    /// Decides a request, as far as the store answers at once.
    pub(super) fn decide(
        self: &Arc<Self>,
        overrides: &SeenOverrides,
        head: &RequestHead<'_>,
    ) -> Next {
        let lists = overrides.lists(self.engine.lists.as_ref());
        let exempt = match lists.map(|lists| self.listed(&lists, overrides, head)) {
            None => SmallVec::new(),
            Some(ControlFlow::Continue(exempt)) => exempt,
            Some(ControlFlow::Break(next)) => return next,
        };
        if let Some((rule, memory)) = self.direct(overrides) {
            return self.decide_directly(rule, memory, head);
        }
        let mut charges = Charges::default();
        let unchecked = |policy: &_, error: Option<&_>| self.record_unchecked(policy, error);
        if let Err((policy, error)) = self.charge(head, overrides, &exempt, &mut charges, unchecked)
        {
            return Next::Deny(self.deny_without_key(Some(policy), &error, head));
        }
        let partition_keys = self.partition_keys(&charges.enforced);
        let wait = if self.may_wait(&charges) {
            let max_wait = self.wait.unwrap_or_default();
            let bound = WaitBound::AllButQueue;
            Wait::Admission(Box::new(self.engine.admission(&charges, max_wait, bound)))
        } else {
            match self.engine.ask(Operation::Take, &charges, 0) {
                Checked::Later(undecided) => Wait::Answer(undecided),
                Checked::Now(answer) => {
                    // Counted by reference: copying a decision takes longer than counting it.
                    self.engine.recorder.answered(&answer);
                    let Ok(mut decision) = answer else {
                        return Next::Deny(self.deny_undecided(head));
                    };
                    if let Some(keys) = partition_keys {
                        decision.give_partitions(&keys);
                    }
                    let holds = self.settles.then(|| self.engine.holds(&charges, &decision));
                    let holds = holds.flatten();
                    if !decision.is_allowed() {
                        let key_of = |policy: &Name| charges.key_of(policy).map(Cow::Borrowed);
                        return Next::Deny(self.deny_by(&decision, holds, &key_of, head));
                    }
                    return Next::Forward(decision, holds);
                }
            }
        };
        Next::Wait(Asked::new(self, wait, &charges, partition_keys))
    }

    /// Decides a request from one bucket in memory. It copies nothing of the request: the copies
    /// would take longer than the decision.
    fn decide_directly(
        self: &Arc<Self>,
        rule: Rule<'_>,
        memory: &MemoryStore,
        head: &RequestHead<'_>,
    ) -> Next {
        let charged = match rule.readers.applies(head) {
            true => rule.charged_key(head),
            false => Ok(None),
        };
        let key = match &charged {
            Ok(Some(key)) => key,
            Ok(None) => {
                let decision = Decision::unlimited(0);
                self.engine.recorder.decided(&decision);
                return Next::Forward(decision, None);
            }
            Err((policy, error)) => {
                return Next::Deny(self.deny_without_key(Some(policy), error, head));
            }
        };
        let demand = rule.chosen_demand(head, None);
        let demand = demand.as_ref().unwrap_or(&rule.policy.demand);
        let charge = rule
            .policy
            .charge(Cow::Borrowed(key), Cow::Borrowed(demand));
        let decision = memory.take(&charge);
        self.engine.recorder.decided(&decision);
        match decision.is_allowed() {
            true => Next::Forward(decision, None),
            false => Next::Deny(self.deny_by(&decision, None, &|_| Some(Cow::Borrowed(key)), head)),
        }
    }

    /// Returns the only policy and the store, if a request is decided by one call to a store in
    /// memory.
    fn direct(&self, overrides: &SeenOverrides) -> Option<(Rule<'_>, &MemoryStore)> {
        if !self.is_plain {
            return None;
        }
        let (policy, memory) = self.engine.direct(overrides)?;
        let readers = self.readers.first()?;
        Some((Rule { policy, readers }, memory))
    }

    /// Adds a charge for each policy that applies to a request and is not `exempt`. `charges` is the
    /// caller's, as lists that are returned would be copied. `unchecked`: see [`Rule::charge`].
    pub(super) fn charge<'a>(
        &'a self,
        head: &RequestHead<'_>,
        overrides: &SeenOverrides,
        exempt: &[&Name],
        charges: &mut Charges<'a>,
        mut unchecked: impl FnMut(&Name, Option<&KeyError>),
    ) -> Result<(), (&'a Name, KeyError)> {
        if !self.applies(head) {
            return Ok(());
        }
        for rule in self.rules() {
            let is_exempt = exempt.iter().any(|name| **name == rule.policy.name);
            if !is_exempt {
                rule.charge(&self.engine, head, overrides, charges, &mut unchecked)?;
            }
        }
        Ok(())
    }

    /// Whether a request may have to wait for more than the store's answer, or what it
    /// takes must be refunded.
    fn may_wait(&self, charges: &Charges<'_>) -> bool {
        let is_held = |charge: &Charge<'_>| {
            charge.demand.quota.is_concurrency() || charge.demand.quota.paces()
        };
        let enforced = &charges.enforced;
        !enforced.is_empty()
            && (self.wait.is_some() || enforced.iter().any(is_held))
            && !charges.is_banned()
    }

    #[expect(clippy::expect_used, reason = "a hash has 32 bytes")]
    fn partition_keys(&self, charges: &[Charge<'_>]) -> PartitionKeys {
        let secret = self.partition_secret.0.as_ref()?;
        let partition_key = |charge: &Charge<'_>| {
            let mut hasher = blake3::Hasher::new_keyed(secret);
            hasher.update(charge.policy().as_bytes());
            // Names are printable, so this byte ends them.
            hasher.update(&[0]);
            hasher.update(charge.key_bytes());
            let hash = hasher.finalize();
            let key = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
            (charge.policy.clone(), *key)
        };
        Some(charges.iter().map(partition_key).collect())
    }

    /// Denies a request that the store did not decide.
    pub(super) fn deny_undecided(&self, head: &RequestHead<'_>) -> Response<Bytes> {
        self.deny(DenialReason::StoreFailed.into(), &|_| None, head)
    }

    /// Denies a request by a decision, and settles the units that shadow policies hold for it.
    /// `key_of`: returns the key that a policy charges.
    pub(super) fn deny_by<'k>(
        self: &Arc<Self>,
        decision: &Decision,
        holds: Option<Holds>,
        key_of: &dyn Fn(&Name) -> Option<Cow<'k, Key>>,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        let response = self.deny(Denial::from(decision), key_of, head);
        if let Some(holds) = holds {
            Settling::denied(self, holds, &response);
        }
        response
    }

    /// Denies a request without a key. `policy`: the one that found none, if it was not the lists that
    /// found no address.
    pub(super) fn deny_without_key(
        &self,
        policy: Option<&Name>,
        error: &KeyError,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        self.log_key_error(error);
        let denial = Denial::from_key_error(policy, error);
        let recorder = &self.engine.recorder;
        recorder.denied_without_decision(denial.reason, policy);
        self.deny(denial, &|_| None, head)
    }

    /// Returns the key that a policy charges. It is read from the request again. Otherwise every
    /// request would keep its keys during the round trip to the store, and few are denied after it.
    pub(super) fn key_again(&self, policy: &Name, head: &RequestHead<'_>) -> Option<Key> {
        let rule = self.rules().find(|rule| rule.policy.name == *policy)?;
        rule.charged_key(head).ok()?
    }
}
