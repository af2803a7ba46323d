//! From a builder to the limits of a limiter.

use std::sync::Arc;

use super::{Limiter, LimiterBuilder, limits::Limits};
use crate::{
    ConfigError, MemoryStore,
    admission::wait_queue::MAX_WAITING,
    metrics::Recorder,
    overlay::{Mode, Overlay},
    policy::{Compiled, check_names, check_strikes},
    policy_name::{Name, limiter_name},
    store::handle::StoreHandle,
    telemetry,
    util::current::Current,
};

impl LimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        #[cfg(feature = "control")]
        if let Some(control) = self.control.clone() {
            return self.build_controlled(&control);
        }
        let limits = self.limits(None, &Overlay::default())?;
        Ok(Limiter {
            limits: Current::Fixed(Arc::new(limits)),
        })
    }

    /// Builds a limiter whose limits can be [replaced](Limiter::replacement).
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn build_replaceable(&self, overlay: &Overlay) -> Result<Limiter, ConfigError> {
        let limits = self.limits(None, overlay)?;
        Ok(Limiter {
            limits: Current::replaceable(Arc::new(limits)),
        })
    }

    /// Checks the settings. `former`: the limits that they replace, whose store and numbers go on.
    fn limits(&self, former: Option<&Limits>, overlay: &Overlay) -> Result<Limits, ConfigError> {
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
        let names: Vec<Name> = policies.iter().map(|policy| policy.name.clone()).collect();
        let policies = policies.into_iter();
        let policies = policies.map(|policy| policy.with_overlay(overlay));
        let (policies, not_taken): (Vec<Compiled>, Vec<Vec<ConfigError>>) = policies.unzip();
        let is_on = |policy: &Compiled| overlay.mode(&policy.name.text) != Some(Mode::Off);
        let (on, off): (Vec<_>, Vec<_>) = policies.into_iter().partition(is_on);
        if on.is_empty() {
            telemetry::all_policies_off(&name);
        }
        let policies: Arc<[Compiled]> = on.into();
        let observer = self.observer.clone();
        let recorder = match former {
            Some(former) => former.recorder.continued(name, &names, observer),
            None => Recorder::new(name, &names, observer),
        };
        let store = match former {
            Some(former) => former.store.clone(),
            None => {
                let store = self.store.clone();
                let store = store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
                let store = StoreHandle::new(store);
                // Later, a name with other numbers than before has one quota, and not two.
                store.add_policies(&policies, policies.iter());
                store
            }
        };
        store.report_to(&recorder);
        Ok(Limits {
            store,
            policies,
            off: off.into(),
            not_taken: not_taken.concat(),
            lists: overlay.lists_beside(self.lists.as_ref()),
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
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn replacement(
        &self,
        builder: &LimiterBuilder,
        overlay: &Overlay,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        let current = self.limits.clone();
        let limits = builder.limits(Some(&current.load()), overlay)?;
        Ok(move || {
            let recorder = Arc::clone(&limits.recorder);
            current.replace(Arc::new(limits));
            recorder.take_over();
        })
    }
}

#[cfg(feature = "config")]
impl Limiter {
    /// Returns what of a control document cannot apply.
    pub(crate) fn not_taken(&self) -> Vec<ConfigError> {
        self.limits.load().not_taken.clone()
    }

    /// Returns whether there is a clone of this limiter.
    pub(crate) fn is_shared(&self) -> bool {
        self.limits.is_shared()
    }
}
