//! The effects of a control document on a checked policy: another mode, and other quotas for
//! callers.

use std::collections::BTreeSet;

use super::{
    check::{SHADOW_STRIKES, cannot_shadow_permits, cannot_strike, cost_above_capacity},
    compiled::Compiled,
};
use crate::{
    ConfigError, Quota,
    enforcement::Enforcement,
    overrides::{Mode, Overrides, PolicyOverrides, SeenOverrides},
    telemetry,
};

impl Compiled {
    /// Makes it a shadow policy, whatever it was.
    ///
    /// # Errors
    ///
    /// Its quota cannot be shadowed.
    pub(crate) fn into_shadow(self) -> Result<Self, ConfigError> {
        match self.cannot_shadow() {
            Some(error) => Err(error),
            None => Ok(Self {
                enforcement: Enforcement::ForNone,
                ..self
            }),
        }
    }

    fn can_shadow(&self) -> bool {
        !self.demand.quota.is_concurrency() && self.demand.strikes.is_none()
    }

    /// Returns why it cannot be a shadow policy.
    pub(crate) fn cannot_shadow(&self) -> Option<ConfigError> {
        let error = if self.demand.quota.is_concurrency() {
            cannot_shadow_permits()
        } else if self.demand.strikes.is_some() {
            cannot_strike(SHADOW_STRIKES)
        } else {
            return None;
        };
        Some(error.in_policy(&self.name.text))
    }

    /// Returns for which callers it is enforced. `None`: a control document has switched it off.
    pub(crate) fn enforcement_under(&self, given: Option<&PolicyOverrides>) -> Option<Enforcement> {
        match given.and_then(|given| given.mode) {
            None => Some(self.enforcement),
            Some(Mode::Enforce) => Some(Enforcement::ForAll),
            Some(Mode::Shadow) if self.can_shadow() => Some(Enforcement::ForNone),
            Some(Mode::Shadow) => Some(self.enforcement),
            Some(Mode::Off) => None,
        }
    }

    /// Returns whether no control document has switched it off.
    pub(crate) fn is_on(&self, overrides: &SeenOverrides) -> bool {
        let given = overrides.policy(&self.name.text);
        self.enforcement_under(given).is_some()
    }

    /// Returns the entries of a control document that cannot apply to it, and why.
    fn conflicts(&self, given: &PolicyOverrides) -> Vec<ConfigError> {
        let mode = given.mode.filter(|mode| *mode == Mode::Shadow);
        let mode = mode.and_then(|_| self.cannot_shadow());
        let quotas = given
            .callers
            .values()
            .filter_map(|given| given.quota.as_ref());
        let conflicts = quotas.filter_map(|quota| override_conflict(&self.demand.quota, quota));
        // The same for each caller, mostly.
        let conflicts: BTreeSet<&str> = conflicts.collect();
        let quotas = conflicts
            .into_iter()
            .map(|conflict| cannot_override(conflict).in_policy(&self.name.text));
        mode.into_iter().chain(quotas).collect()
    }
}

/// Checks a version of a control document against the policies of a layer or limiter, and logs if
/// it switches all of them off. Returns the entries that cannot apply, and why. A request ignores
/// them.
pub(crate) fn check_overrides<'a>(
    overrides: &Overrides,
    limiter: &str,
    policies: impl Iterator<Item = &'a Compiled>,
) -> Vec<ConfigError> {
    let mut conflicts = Vec::new();
    let mut is_any_on = false;
    for policy in policies {
        let given = overrides.policy(&policy.name.text);
        is_any_on |= policy.enforcement_under(given).is_some();
        conflicts.extend(given.into_iter().flat_map(|given| policy.conflicts(given)));
    }
    if !is_any_on {
        telemetry::all_policies_off(limiter);
    }
    conflicts
}

/// Returns an error if a caller of a policy with one quota cannot be given the other, or if no request
/// of this cost could pass.
pub(crate) fn check_override(own: &Quota, cost: u64, other: &Quota) -> Result<(), ConfigError> {
    let capacity = other.capacity();
    match override_conflict(own, other) {
        Some(conflict) => Err(cannot_override(conflict)),
        // A capacity of 0 is deliberate.
        None if cost > capacity && capacity > 0 => Err(cost_above_capacity(cost, capacity)),
        None => Ok(()),
    }
}

fn cannot_override(conflict: &str) -> ConfigError {
    let message = format!(
        "a caller's quota cannot replace that of the policy: {conflict}; give a quota of the policy's algorithm"
    );
    ConfigError::new("cannot-override", message)
}

/// Returns why a caller of a policy with one quota cannot be given the other.
pub(crate) fn override_conflict(own: &Quota, other: &Quota) -> Option<&'static str> {
    if own.is_pause() || other.is_pause() {
        Some("a Pause, which has no numbers")
    } else if own.penalty().is_some() != other.penalty().is_some() {
        Some("a Penalty and a quota that grants units, because one counts strikes and not requests")
    } else if own.is_concurrency() != other.is_concurrency() {
        Some("a Concurrency quota and another, because its units are held and not used up")
    } else if other.paces() && !own.paces() {
        Some("a LeakyBucket with a queue on a policy without one, because its requests wait")
    } else {
        None
    }
}
