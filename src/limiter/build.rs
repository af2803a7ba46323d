//! From a builder to the limits of a limiter.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Limiter, LimiterBuilder, limits::Limits};
use crate::{
    ConfigError, MemoryStore,
    admission::wait_queue::MAX_WAITING,
    metrics::Recorder,
    policy::{Compiled, check_names, check_strikes},
    policy_name::limiter_name,
    store::handle::StoreHandle,
};
#[cfg(feature = "control")]
use crate::{control::Subscriber, overrides::Overrides, policy::check_overrides};

impl LimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let limiter = self.build_unsubscribed()?;
        #[cfg(feature = "control")]
        limiter.subscribe();
        Ok(limiter)
    }

    /// Builds a limiter against which no control document is checked yet.
    pub(crate) fn build_unsubscribed(&self) -> Result<Limiter, ConfigError> {
        Ok(Limiter {
            limits: Arc::new(ArcSwap::from_pointee(self.limits(None)?)),
        })
    }

    /// Checks the settings. `former`: the limits that they replace, whose store and numbers go on.
    fn limits(&self, former: Option<&Limits>) -> Result<Limits, ConfigError> {
        let policies = self.policies.iter();
        let policies = policies.map(|policy| {
            let policy = policy.compile_without_requests(self.on_store_failure)?;
            match self.shadow_all {
                true => policy.into_shadow(),
                false => Ok(policy),
            }
        });
        let policies: Vec<Compiled> = policies.collect::<Result<_, _>>()?;
        check_names(policies.iter().map(|policy| &policy.name))?;
        check_strikes(&policies.iter(), false)?;
        let name = limiter_name(self.name.as_deref())?;
        let policies: Arc<[Compiled]> = policies.into();
        let observer = self.observer.clone();
        let names = policies.iter().map(|policy| &policy.name);
        let recorder = Recorder::new(
            former.map(|former| &*former.recorder),
            name,
            names,
            observer,
        );
        let store = match former {
            Some(former) => former.store.clone(),
            None => {
                let store = self.store.clone();
                let store = store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
                let store = StoreHandle::new(store);
                #[cfg(feature = "control")]
                let store = store.follow(self.control.clone())?;
                // Later, a name with other numbers than before has one quota, and not two.
                store.add_policies(&policies, policies.iter());
                store
            }
        };
        store.report_to(&recorder);
        Ok(Limits {
            store,
            policies,
            lists: self.lists.clone(),
            max_waiting: self.max_waiting.unwrap_or(MAX_WAITING),
            recorder,
        })
    }
}

impl Limiter {
    /// Checks other settings for this limiter and its clones. They take effect when the result is
    /// called: a check has either the former settings or the new ones, for all of its way.
    ///
    /// The store and the numbers go on; the builder's store does not matter.
    #[cfg(feature = "config")]
    pub(crate) fn replacement(
        &self,
        builder: &LimiterBuilder,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        let current = Arc::clone(&self.limits);
        let limits = builder.limits(Some(&current.load()))?;
        Ok(move || current.store(Arc::new(limits)))
    }

    /// Has each version of its control document checked against its policies.
    #[cfg(feature = "control")]
    pub(crate) fn subscribe(&self) {
        if let Some(control) = self.limits.load().store.control() {
            control.held().subscribe(&self.limits);
        }
    }

    /// Returns whether there is a clone of this limiter.
    #[cfg(feature = "config")]
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.limits) > 1
    }
}

#[cfg(feature = "control")]
impl Subscriber for ArcSwap<Limits> {
    fn check(&self, overrides: &Overrides) -> Vec<String> {
        let limits = self.load();
        let name = limits.recorder.name();
        let conflicts = check_overrides(overrides, name, limits.policies.iter()).into_iter();
        conflicts
            .map(|error| format!("limiter {name}: {error}"))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        let limits = self.load();
        limits
            .policies
            .iter()
            .any(|policy| *policy.name.text == *name)
    }
}
