//! A store, with everything that a limiter or layer needs around it.

use std::{fmt, sync::Arc};

use tokio::runtime::Handle;

use super::{
    Answer, Charge, Check, MemoryStore, Store,
    checked::{Checked, Undecided},
    context::SharedStore,
    fallback::Fallback,
    shadow::Shadows,
};
use crate::{
    ConfigError, Decision, Fingerprint, Key, List, PolicyDecision, Quota,
    charge::Operation,
    control::Control,
    lists::LoadedLists,
    metrics::{Recorder, store::StoreMetrics},
    overrides::{PolicyOverrides, SeenOverrides},
    policy::{Compiled, override_conflict},
    util::interned::Interned,
};

/// A store, its fallback, and the control document of its users.
#[derive(Clone)]
pub(crate) struct StoreHandle {
    store: SharedStore,
    fallback: Fallback,
    /// The same store, if it is the memory store, which answers at once and never fails.
    memory: Option<MemoryStore>,
    control: Option<Control>,
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHandle")
            .field("store", &self.store.store)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

impl StoreHandle {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let memory = store.as_memory().cloned();
        let fallback = store.fallback();
        // Any other store that may fail has a fallback.
        let is_remote = memory.is_none() && fallback.is_some();
        let fallback = fallback.unwrap_or_default();
        Self {
            memory,
            store: SharedStore {
                store,
                context: Arc::clone(fallback.context()),
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
                .control()
                .map(|control| Control::fixed(Arc::clone(&control.held().overrides()))),
            ..self
        }
    }

    /// Returns the control document, if there is one.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Returns whether a control document may change the limits of its users.
    pub(crate) const fn is_followed(&self) -> bool {
        self.control.is_some()
    }

    /// Returns the overrides of the control document. A request reads them once, and uses this
    /// version from start to end.
    #[inline]
    pub(crate) fn overrides(&self) -> SeenOverrides {
        let version = self.control().map(|control| control.held().overrides());
        SeenOverrides::new(version)
    }

    pub(crate) const fn shared(&self) -> &SharedStore {
        &self.store
    }

    /// Returns the store, if it is in memory: it decides at once, and never fails.
    #[inline]
    pub(crate) const fn memory(&self) -> Option<&MemoryStore> {
        self.memory.as_ref()
    }

    #[inline]
    pub(crate) fn check(&self, check: &Check<'_>) -> Checked {
        let answer = match self.store.store.check(check) {
            Answer::Now(answer) => answer,
            Answer::Later(answer) => {
                return Checked::Later(Undecided::new(answer, &self.fallback, check));
            }
        };
        if let Ok(decision) = &answer {
            self.store.context.health.answered(decision);
            return Checked::Now(answer);
        }
        Checked::Now(self.fallback.decide_instead(answer, check))
    }

    /// Checks the enforced policies together and each shadow policy on its own, in one round trip
    /// if the store can. A request waits only for the answer of the enforced policies. No shadow
    /// policy changes that answer, and the fallback does not decide for shadow policies. At least
    /// one of the lists has a charge.
    #[inline]
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
            &self.store,
            operation,
            shadows,
            Some(recorder),
        ))
    }

    /// Peeks at each bucket on its own, in one round trip if the store can. `None` for buckets for
    /// which the store has no answer.
    pub(crate) async fn peek_each(&self, charges: &[Charge<'_>]) -> Vec<Option<PolicyDecision>> {
        let shadows = Shadows::new(&self.store, Operation::Peek, charges, None);
        let decided = shadows.complete(Ok(Decision::unlimited(0)));
        let outcomes = match decided.wait().await {
            Ok(decision) => decision.shadows().to_vec(),
            Err(_) => Vec::new(),
        };
        let mut outcomes = outcomes.iter().map(|outcome| outcome.get().cloned());
        charges.iter().map(|_| outcomes.next().flatten()).collect()
    }

    /// Resets buckets, in the store and in this process.
    pub(crate) fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        if let Some(local) = self.fallback.used_local() {
            // The memory store answers at once.
            drop(local.reset(charges));
        }
        self.store.store.reset(charges)
    }

    /// Records that these policies use this store for as long as they exist, to log a name that has
    /// two quotas.
    pub(crate) fn add_policies(&self, policies: &Arc<[Compiled]>) {
        self.fallback.0.policies.add(policies);
    }

    /// Tells the observer of a layer or limiter of each change of the store.
    pub(crate) fn report_to(&self, recorder: &Arc<Recorder>) {
        self.store.context.health.report_to(recorder);
    }

    /// Returns the quota that a control document has for a caller of a policy, and the decision if the
    /// document bans it.
    #[inline]
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
        self.store.store.fingerprint(key)
    }

    /// Returns the list that a key is on.
    pub(crate) fn find_listed(&self, lists: &LoadedLists<'_>, key: &Key) -> Option<List> {
        lists.find_key(key, |key| self.fingerprint(key))
    }

    pub(crate) fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        self.store.store.storage_key(charge)
    }

    /// Returns the numbers of the store, with the counts of its layers and limiters.
    pub(crate) fn metrics(&self) -> StoreMetrics {
        self.fallback.metrics_of(&*self.store.store)
    }

    /// Returns the handle of this process's own buckets, to refund a decision that was made
    /// there.
    pub(crate) fn local(&self) -> Self {
        Self {
            store: self.fallback.local().clone(),
            fallback: Fallback::new(),
            memory: None,
            control: None,
        }
    }

    /// Runs work for the store in the background.
    pub(crate) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.store.spawn(runtime, work);
    }

    /// Returns the number of this store, which all clones of the handle share.
    pub(crate) fn id(&self) -> usize {
        self.store.context.id
    }

    /// Returns the numbers of the store and of its fallback.
    pub(crate) fn ids(&self) -> [usize; 2] {
        [self.id(), self.fallback.0.local_context.id]
    }
}
