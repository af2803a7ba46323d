//! A store, with everything that a limiter or layer needs around it.

use std::sync::Arc;

use super::{
    Answer, Charge, Check, MemoryStore, Store,
    checked::{Checked, Undecided},
    context::{SharedStore, bans::Strikes},
    fallback::Fallback,
    shadow::Shadows,
};
use crate::{
    ConfigError, Decision, Fingerprint, Key, List, PolicyDecision, Quota, Source, StoreError,
    charge::Operation,
    control::Control,
    metrics::{Recorder, store::StoreMetrics},
    overrides::{LoadedLists, PolicyOverrides, SeenOverrides},
    policy::{Compiled, override_conflict},
    policy_name::Name,
    util::interned::Interned,
};

/// A store, its fallback, and the control document of its users.
#[derive(Clone, Debug)]
pub(crate) struct StoreHandle {
    pub(crate) shared: SharedStore,
    fallback: Fallback,
    /// The same store, if it is the memory store, which answers at once and never fails.
    memory: Option<MemoryStore>,
    pub(crate) control: Option<Control>,
}

impl StoreHandle {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let memory = store.as_memory().cloned();
        let fallback = store.fallback();
        // Any other store that may fail has a fallback.
        let is_remote = memory.is_none() && fallback.is_some();
        let fallback = fallback.unwrap_or_default();
        fallback.bans().attach(&store);
        Self {
            memory,
            shared: SharedStore {
                store,
                context: Arc::clone(&fallback.0.context),
                is_remote,
            },
            fallback,
            control: None,
        }
    }

    /// Follows a control document. Without one, it keeps following the one that it has.
    ///
    /// # Errors
    ///
    /// Returns an error if the document calls keys by other names than the store does.
    pub(crate) fn follow(mut self, control: Option<&Control>) -> Result<Self, ConfigError> {
        if let Some(control) = control {
            control.check_secret(self.fingerprint(&Key::everyone()))?;
            self.control = Some(control.clone());
        }
        Ok(self)
    }

    /// Keeps the overrides that the control document of another handle has now.
    pub(crate) fn with_overrides_of(self, other: &Self) -> Self {
        Self {
            control: other
                .control
                .as_ref()
                .map(|control| Control::fixed(Arc::clone(&control.held().overrides()))),
            ..self
        }
    }

    /// Returns the overrides of the control document. A request reads them once, and uses this
    /// version from start to end.
    pub(crate) fn overrides(&self) -> SeenOverrides {
        let version = self
            .control
            .as_ref()
            .map(|control| control.held().overrides());
        SeenOverrides(version)
    }

    /// Returns the store, if it is in memory: it decides at once, and never fails.
    pub(crate) const fn memory(&self) -> Option<&MemoryStore> {
        self.memory.as_ref()
    }

    /// Returns whether a ban of one of these charges is known without asking a server.
    pub(crate) fn knows_ban(&self, charges: &[Charge<'_>]) -> bool {
        let check = Check::new(Operation::Peek, charges);
        let Some(memory) = &self.memory else {
            return self.shared.context.bans.denial_known(&check).is_some();
        };
        let answer = memory.check(&check);
        matches!(answer, Answer::Now(Ok(decision)) if !decision.is_allowed())
    }

    pub(crate) fn check(&self, check: &Check<'_>) -> Checked {
        let bans = &self.shared.context.bans;
        if let Some(denied) = bans.denial_unconfirmed(check) {
            let denied = match self.shared.context.health.is_up() {
                true => denied.cached(),
                false => denied.made_locally(false),
            };
            return Checked::Now(Ok(denied));
        }
        let answer = match self.shared.store.check(check) {
            Answer::Now(answer) => answer,
            Answer::Later(answer) => {
                return Checked::Later(Undecided::new(answer, &self.fallback, check));
            }
        };
        if let Ok(decision) = &answer {
            self.shared.context.health.answered(decision);
            if self.memory.is_none() {
                bans.learn(check.charges(), decision);
            }
            return Checked::Now(answer);
        }
        Checked::Now(self.fallback.decide_instead(answer, check))
    }

    /// Checks the enforced policies together and each shadow policy on its own, in one round trip
    /// if the store can. A request waits only for the answer of the enforced policies. No shadow
    /// policy changes that answer, and the fallback does not decide for shadow policies. At least
    /// one of the lists has a charge.
    pub(crate) fn check_with_shadows(
        &self,
        operation: Operation,
        enforced: &[Charge<'_>],
        shadows: &[Charge<'_>],
        recorder: &Arc<Recorder>,
    ) -> Checked {
        if shadows.is_empty() {
            return self.check(&Check::new(operation, enforced));
        }
        let checked = if enforced.is_empty() {
            let units = match operation {
                // Nothing was refunded.
                Operation::Refund => 0,
                _ => shadows.first().map_or(0, Charge::cost),
            };
            Checked::Now(Ok(Decision::unlimited(units)))
        } else {
            self.check(&Check::new(operation, enforced).beside(shadows))
        };
        checked.beside(Shadows::new(
            &self.shared,
            operation,
            shadows,
            Some(recorder),
        ))
    }

    /// Peeks at each bucket on its own, in one round trip if the store can: as if all were of shadow
    /// policies, so the fallback decides none. `None` for buckets for which the store has no answer.
    pub(crate) async fn peek_each(&self, charges: &[Charge<'_>]) -> Vec<Option<PolicyDecision>> {
        let shadows = Shadows::new(&self.shared, Operation::Peek, charges, None);
        let decided = shadows.complete(Ok(Decision::unlimited(0)));
        let outcomes = match decided.wait().await {
            Ok(decision) => decision.shadows().to_vec(),
            Err(_) => Vec::new(),
        };
        let mut outcomes = outcomes.iter().map(|outcome| outcome.get().cloned());
        charges.iter().map(|_| outcomes.next().flatten()).collect()
    }

    /// Keeps what this process states about bans and strikes until the store has confirmed it. Call it
    /// before bans are asked for: they hold in this process from then on.
    pub(crate) fn state_bans(&self, charges: &[Charge<'_>]) {
        if self.memory.is_none() {
            self.shared.context.bans.ban(charges);
        }
    }

    /// Keeps strikes that the store did not count.
    pub(crate) fn keep_strikes(
        &self,
        charges: &[Charge<'_>],
        answer: &Result<Decision, StoreError>,
    ) {
        for charge in charges {
            let strikes = match answer {
                Err(error) => Strikes::of_failed(charge.cost(), error),
                Ok(decision) if decision.is_lost() => continue,
                Ok(decision) => match decision.source() {
                    Source::Local => Strikes {
                        store: charge.cost(),
                        local: 0,
                    },
                    Source::StoreFailure => Strikes {
                        store: charge.cost(),
                        local: charge.cost(),
                    },
                    _ => continue,
                },
            };
            self.shared.context.bans.keep_strikes(charge, strikes);
        }
    }

    /// Resets buckets, in the store and in this process.
    pub(crate) fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.shared.context.bans.forget(charges);
        if let Some(local) = self.fallback.used_local() {
            // The memory store answers at once.
            drop(local.reset(charges));
        }
        self.shared.store.reset(charges)
    }

    /// Records that these policies use this store for as long as they exist, to log a name that has
    /// two quotas.
    pub(crate) fn add_policies(&self, policies: &Arc<[Compiled]>) {
        self.fallback.0.policies.add(policies);
    }

    /// Returns the quota that a control document has for a caller of a policy, and the decision if the
    /// document bans it.
    pub(crate) fn find_override<'a>(
        &self,
        policy: &Compiled,
        given: Option<&'a PolicyOverrides>,
        key: &Key,
    ) -> (Option<&'a Interned<Quota>>, Option<PolicyDecision>) {
        let given = given.filter(|given| !given.callers.is_empty());
        let given = given.and_then(|given| given.callers.get(&self.fingerprint(key)));
        let Some(given) = given else {
            return (None, None);
        };
        let quota = given.quota.as_ref();
        let ban = given.ban.as_ref();
        (
            quota.filter(|quota| override_conflict(&policy.demand.quota, quota).is_none()),
            ban.and_then(|ban| ban.decision(&policy.name)),
        )
    }

    /// Returns the store's name for a key.
    pub(crate) fn fingerprint(&self, key: &Key) -> Fingerprint {
        self.shared.store.fingerprint(key)
    }

    /// Returns the list that a key of a policy is on.
    pub(crate) fn find_listed(
        &self,
        lists: &LoadedLists<'_>,
        policy: &Name,
        key: &Key,
    ) -> Option<List> {
        lists.find_key(&policy.text, key, |key| self.fingerprint(key))
    }

    pub(crate) fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        self.shared.store.storage_key(charge)
    }

    /// Returns the numbers of the store, with the counts of its layers and limiters.
    pub(crate) fn metrics(&self) -> StoreMetrics {
        self.fallback.metrics_of(&*self.shared.store)
    }

    /// Returns the handle of this process's own buckets, to refund a decision that was made
    /// there.
    pub(crate) fn local(&self) -> Self {
        Self {
            shared: self.fallback.local().clone(),
            fallback: Fallback::new(),
            memory: None,
            control: None,
        }
    }

    /// Returns the store, and this process's own buckets if they were ever used.
    pub(crate) fn stores(&self) -> [Option<&SharedStore>; 2] {
        [Some(&self.shared), self.fallback.0.local.get()]
    }

    /// Peeks at the enforced policies, and checks each shadow policy.
    pub(crate) fn peek_beside_shadows(
        &self,
        enforced: &[Charge<'_>],
        shadows: &[Charge<'_>],
        recorder: &Arc<Recorder>,
    ) -> Checked {
        let checked = self.check(&Check::new(Operation::Peek, enforced));
        if shadows.is_empty() {
            return checked;
        }
        let take = Operation::Take;
        checked.beside(Shadows::new(&self.shared, take, shadows, Some(recorder)))
    }

    /// Returns the number of this store, which all clones of the handle share.
    pub(crate) fn id(&self) -> usize {
        self.shared.context.id
    }

    /// Returns the numbers of the store and of its fallback.
    pub(crate) fn ids(&self) -> [usize; 2] {
        [self.id(), self.fallback.0.local_context.id]
    }
}
