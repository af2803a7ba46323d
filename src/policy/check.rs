//! The check of policies: every mistake that can be known before the first request, in one policy
//! and among those of a layer or limiter.

use std::{collections::HashSet, time::Duration};

use super::{Policy, compiled::Compiled};
use crate::{
    ConfigError, OnStoreFailure, Quota,
    charge::Demand,
    enforcement::{Enforcement, Percent},
    policy_name::Name,
    quota::hold::HoldDemand,
};

pub(super) const SHADOW_STRIKES: &str =
    "a shadow policy, which does not know what other policies decide";

pub(super) fn cannot_shadow_permits() -> ConfigError {
    let conflict = "a Concurrency quota, because its units are held by requests that were let in";
    ConfigError::CannotShadow { conflict }
}

impl Policy {
    /// Reports every configuration error that can be known before the first request.
    /// `on_store_failure` applies if the policy has no setting of its own.
    pub(crate) fn compile(
        &self,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        let quota = self.quota.clone();
        let quota = quota.map_err(|error| match &self.name {
            Some(name) => error.in_policy(name),
            None => error,
        })?;
        let name = self.name.clone().unwrap_or_else(|| quota.to_name());
        let name = Name::new(&name).ok_or(ConfigError::PolicyName { name })?;
        let compiled = self.compile_named(&name, quota, on_store_failure);
        compiled.map_err(|error| error.in_policy(&name.text))
    }

    /// Checks a policy of a [`Limiter`](crate::Limiter), which has no requests to read.
    pub(crate) fn compile_without_requests(
        &self,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        let compiled = self.compile(on_store_failure)?;
        #[cfg(feature = "http")]
        if let Some(method) = self.readers.method() {
            let error = ConfigError::NoRequestToRead { method };
            return Err(error.in_policy(&compiled.name.text));
        }
        Ok(compiled)
    }

    fn compile_named(
        &self,
        name: &Name,
        quota: Quota,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        if quota.penalty().is_some() && self.cost.is_some() {
            return Err(ConfigError::CostOfPenalty { method: "cost" });
        }
        self.check_own_strikes(&quota)?;
        let cost = self.checked_cost(&quota)?;
        let debt = self.checked_debt(&quota)?;
        self.check_lease(&quota)?;
        let enforcement = self.checked_enforcement(&quota)?;
        let on_store_failure = self.on_store_failure.unwrap_or(on_store_failure);
        if on_store_failure == OnStoreFailure::share_of(0) {
            let setting = "share_of";
            return Err(ConfigError::Zero { setting });
        }
        Ok(Compiled {
            name: name.clone(),
            demand: Demand {
                strikes: self.strikes_on_denial.then_some(0),
                hold: self.checked_hold(&quota)?,
                ..Demand::of_request(quota.intern(), cost)
            },
            debt,
            shared: self.shared,
            on_store_failure,
            leases: self.leases,
            enforcement,
        })
    }

    fn checked_cost(&self, quota: &Quota) -> Result<u64, ConfigError> {
        let (cost, capacity) = (self.cost.unwrap_or(1), quota.capacity());
        // A capacity of 0 is deliberate: it denies everything.
        match cost > capacity && capacity > 0 {
            true => Err(ConfigError::CostAboveCapacity { cost, capacity }),
            false => Ok(cost),
        }
    }

    /// Returns the most units that may be owed.
    fn checked_debt(&self, quota: &Quota) -> Result<u64, ConfigError> {
        let max = quota.most_debt();
        match self.debt.unwrap_or(max) {
            debt if debt > max => Err(ConfigError::DebtTooLarge { debt, max }),
            // A lease would let a debtor skip the wait.
            _ if self.leases => Ok(0),
            debt => Ok(debt),
        }
    }

    fn check_lease(&self, quota: &Quota) -> Result<(), ConfigError> {
        let conflict = match (quota.leases(), self.debt) {
            _ if !self.leases => return Ok(()),
            (false, _) => "a quota that is no TokenBucket",
            (true, Some(1..)) => "`max_debt(..)`",
            (true, _) => return Ok(()),
        };
        Err(ConfigError::CannotLease { conflict })
    }

    /// Returns how units are held, or why they cannot be.
    fn checked_hold(&self, quota: &Quota) -> Result<Option<Box<HoldDemand>>, ConfigError> {
        const LONGEST: Duration = Duration::from_secs(86_400);

        let Some(lifetime) = self.hold_for else {
            return Ok(None);
        };
        #[cfg(feature = "http")]
        if quota.penalty().is_some() && self.readers.settles() {
            // What it is settled as are strikes, of which none are held.
            return Ok(None);
        }
        let conflict = if self.leases {
            "`lease()`, because leased units are charged already"
        } else if quota.penalty().is_some() {
            "a Penalty, because it takes no units"
        } else if quota.paces() {
            "a LeakyBucket with a queue, because its units are places in time"
        } else if quota.is_concurrency() {
            "a Concurrency quota, because its units are held until the response has ended"
        } else if !(Duration::from_secs(1)..=LONGEST).contains(&lifetime) {
            return Err(ConfigError::HoldOutOfRange { lifetime });
        } else {
            let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            return Ok(Some(Box::new(HoldDemand::new(lifetime_ms, 0))));
        };
        Err(ConfigError::CannotHold { conflict })
    }

    /// Returns an error if denials cannot be strikes.
    fn check_own_strikes(&self, quota: &Quota) -> Result<(), ConfigError> {
        let conflict = if !self.strikes_on_denial {
            return Ok(());
        } else if quota.penalty().is_none() {
            "a quota that is no Penalty"
        } else if self.enforcement == Enforcement::ForNone {
            SHADOW_STRIKES
        } else {
            return Ok(());
        };
        Err(ConfigError::CannotStrike { conflict })
    }

    /// Returns for which callers it is enforced, or why it cannot be so.
    fn checked_enforcement(&self, quota: &Quota) -> Result<Enforcement, ConfigError> {
        if let Enforcement::For(Percent(percent)) = self.enforcement {
            if !(1..=100).contains(&percent) {
                return Err(ConfigError::PercentOutOfRange { percent });
            }
            if self.shared {
                return Err(ConfigError::SharedPercent);
            }
        }
        let is_allowed = matches!(self.on_store_failure, None | Some(OnStoreFailure::Allow));
        if self.enforcement == Enforcement::ForNone && !is_allowed {
            let conflict =
                "`on_store_failure(..)`, because it lets requests pass while the store fails";
            return Err(ConfigError::CannotShadow { conflict });
        }
        let enforcement = match self.enforcement {
            Enforcement::For(Percent(100)) => Enforcement::ForAll,
            enforcement => enforcement,
        };
        match enforcement.may_be_shadow() && quota.is_concurrency() {
            true => Err(cannot_shadow_permits()),
            false => Ok(enforcement),
        }
    }
}

/// Returns an error if denials are to be strikes, and there can be none. `waits`: whether denied
/// callers wait.
pub(crate) fn check_strikes<'a>(
    policies: &(impl Iterator<Item = &'a Compiled> + Clone),
    waits: bool,
) -> Result<(), ConfigError> {
    let striking = policies
        .clone()
        .find(|policy| policy.demand.strikes.is_some());
    let Some(striking) = striking else {
        return Ok(());
    };
    let can_deny =
        |other: &Compiled| other.name != striking.name && other.enforcement != Enforcement::ForNone;
    let conflict = if waits {
        "`wait_up_to(..)`, because a caller that waits is not denied yet"
    } else if !policies.clone().any(can_deny) {
        "being the only policy that denies, because the denials of others are the strikes"
    } else {
        return Ok(());
    };
    Err(ConfigError::CannotStrike { conflict }.in_policy(&striking.name.text))
}

/// Returns an error if there is no policy, or if two have one name.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a Name>,
) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(&*name.text) {
            return Err(ConfigError::DuplicatePolicy {
                name: name.text.to_string(),
            });
        }
    }
    if seen.is_empty() {
        return Err(ConfigError::NoPolicies);
    }
    Ok(())
}
