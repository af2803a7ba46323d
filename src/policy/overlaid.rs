//! What a control document makes of a checked policy: another mode, and other quotas for callers.

#[cfg(feature = "control")]
use std::{collections::BTreeSet, sync::Arc};

use super::{
    check::{SHADOW_STRIKES, cannot_shadow_permits, cannot_strike},
    compiled::Compiled,
};
use crate::{
    ConfigError,
    enforcement::Enforcement,
    overlay::{Mode, Overlay},
};
#[cfg(feature = "control")]
use crate::{Quota, util::interned::Interned};

impl Compiled {
    /// Makes it a shadow policy, whatever it was.
    ///
    /// # Errors
    ///
    /// Its quota cannot be shadowed.
    pub(crate) fn into_shadow(self) -> Result<Self, ConfigError> {
        if self.demand.quota.is_concurrency() {
            return Err(cannot_shadow_permits().in_policy(&self.name.text));
        }
        if self.demand.strikes.is_some() {
            return Err(cannot_strike(SHADOW_STRIKES).in_policy(&self.name.text));
        }
        Ok(Self {
            enforcement: Enforcement::ForNone,
            ..self
        })
    }

    /// Applies what a control document says of the policy, but not whether it is off. What the
    /// policy cannot take is left out, and is returned.
    pub(crate) fn with_overlay(self, overlay: &Overlay) -> (Self, Vec<ConfigError>) {
        let mut not_taken = Vec::new();
        let policy = match overlay.mode(&self.name.text) {
            Some(Mode::Enforce) => Self {
                enforcement: Enforcement::ForAll,
                ..self
            },
            Some(Mode::Shadow) => self.clone().into_shadow().unwrap_or_else(|error| {
                not_taken.push(error);
                self
            }),
            Some(Mode::Off) | None => self,
        };
        #[cfg(feature = "control")]
        let policy = policy.with_callers(overlay, &mut not_taken);
        (policy, not_taken)
    }

    #[cfg(feature = "control")]
    fn with_callers(mut self, overlay: &Overlay, not_taken: &mut Vec<ConfigError>) -> Self {
        let Some(callers) = overlay.callers(&self.name.text) else {
            return self;
        };
        let mut callers = Arc::clone(callers);
        let conflict = |quota: &Option<Interned<Quota>>| {
            let quota = quota.as_deref()?;
            override_conflict(&self.demand.quota, quota)
        };
        let conflicts = callers.values().filter_map(|given| conflict(&given.quota));
        // The same for each caller, mostly.
        let conflicts: BTreeSet<&str> = conflicts.collect();
        if !conflicts.is_empty() {
            let callers = Arc::make_mut(&mut callers).values_mut();
            for given in callers.filter(|given| conflict(&given.quota).is_some()) {
                given.quota = None;
            }
        }
        let errors = conflicts.into_iter().map(cannot_override);
        not_taken.extend(errors.map(|error| error.in_policy(&self.name.text)));
        self.overrides = Some(callers);
        self
    }
}

/// Returns an error if a caller of a policy with one quota cannot be given the other.
#[cfg(feature = "admin")]
pub(crate) fn check_override(own: &Quota, other: &Quota) -> Result<(), ConfigError> {
    override_conflict(own, other).map_or(Ok(()), |conflict| Err(cannot_override(conflict)))
}

#[cfg(feature = "control")]
fn cannot_override(conflict: &str) -> ConfigError {
    let message = format!(
        "a caller's quota cannot replace that of the policy: {conflict}; give a quota of the policy's algorithm"
    );
    ConfigError::new("cannot-override", message)
}

#[cfg(feature = "control")]
fn override_conflict(own: &Quota, other: &Quota) -> Option<&'static str> {
    if own.penalty().is_some() != other.penalty().is_some() {
        Some("a Penalty and a quota that grants units, because one counts strikes and not requests")
    } else if own.is_concurrency() != other.is_concurrency() {
        Some("a Concurrency quota and another, because its units are held and not used up")
    } else if other.paces() && !own.paces() {
        Some("a LeakyBucket with a queue on a policy without one, because its requests wait")
    } else {
        None
    }
}
