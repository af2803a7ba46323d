//! The check of policies: every mistake that can be known before the first request, in one policy
//! and among those of a layer or limiter.

use std::{collections::HashSet, time::Duration};

use super::{Policy, compiled::Compiled};
use crate::{
    Algorithm, ConfigError, OnStoreFailure, Quota,
    charge::Demand,
    enforcement::Enforcement,
    policy_name::{LONGEST, Name, invalid_policy_name},
    quota::hold::HoldDemand,
};

pub(super) const SHADOW_STRIKES: &str =
    "a shadow policy, which does not know what other policies decide";

pub(super) fn cannot_shadow_permits() -> ConfigError {
    cannot_shadow("a Concurrency quota, because its units are held by requests that were let in")
}

fn cannot_shadow(conflict: &str) -> ConfigError {
    ConfigError::new(
        "cannot-shadow",
        format!("a shadow policy cannot have {conflict}; drop that, or enforce the policy"),
    )
}

pub(super) fn cannot_strike(conflict: &str) -> ConfigError {
    ConfigError::new(
        "cannot-strike",
        format!("`strike_on_denial()` cannot be combined with {conflict}; drop it, or change that"),
    )
}

pub(super) fn cost_above_capacity(cost: u64, capacity: u64) -> ConfigError {
    let message = format!(
        "`cost({cost})` exceeds the {capacity} units that the quota can grant at once; lower the cost, or raise the quota"
    );
    ConfigError::new("cost-above-capacity", message)
}

pub(crate) fn cannot_lease(conflict: &str) -> ConfigError {
    let message = format!(
        "`lease()` cannot be combined with {conflict}; it needs a TokenBucket without `max_debt(..)` or `wait_up_to(..)`"
    );
    ConfigError::new("cannot-lease", message)
}

/// Returns the error for a cost of a penalty, set by a method of [`Policy`].
pub(crate) fn cost_of_penalty(method: &str) -> ConfigError {
    ConfigError::new(
        "cost-of-penalty",
        format!(
            "`{method}(..)` on a Penalty or a Pause, which takes no units of a request; drop it"
        ),
    )
}

/// Returns a name that describes the quota, as in `"10-per-second-burst-20"`.
fn name_of(quota: &Quota) -> String {
    let mut name = quota.to_string().replace(", ", "-").replace(' ', "-");
    name.truncate(LONGEST);
    name
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
        let name = self.name.clone().unwrap_or_else(|| name_of(&quota));
        let name = Name::new(&name).ok_or_else(|| invalid_policy_name(&name))?;
        let compiled = self.compile_named(&name, quota, on_store_failure);
        compiled.map_err(|error| error.in_policy(&name.text))
    }

    /// Returns an error if the policy reads requests, which a [`Limiter`](crate::Limiter) does not
    /// have.
    pub(crate) fn check_reads_nothing(&self, name: &Name) -> Result<(), ConfigError> {
        let Some(method) = self.readers.method() else {
            return Ok(());
        };
        let message = format!(
            "`{method}(..)` reads requests, which a `Limiter` does not have; drop it, or use a `RateLimitLayer`"
        );
        let error = ConfigError::new("no-request-to-read", message).with_subject(method);
        Err(error.in_policy(&name.text))
    }

    fn compile_named(
        &self,
        name: &Name,
        quota: Quota,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        if quota.penalty().is_some() && self.cost.is_some() {
            return Err(cost_of_penalty("cost"));
        }
        self.check_own_strikes(&quota)?;
        let cost = self.checked_cost(&quota)?;
        let debt = self.checked_debt(&quota)?;
        self.check_lease(&quota)?;
        let enforcement = self.checked_enforcement(&quota)?;
        let on_store_failure = self.on_store_failure.unwrap_or(on_store_failure);
        if on_store_failure == OnStoreFailure::share_of(0) {
            return Err(ConfigError::zero("share_of"));
        }
        let mut compiled = Compiled {
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
            has_tiers: self.readers.quota_by.is_some(),
            settles: self.readers.settle_by.is_some(),
        };
        compiled.demand = compiled.held(compiled.demand.clone());
        Ok(compiled)
    }

    fn checked_cost(&self, quota: &Quota) -> Result<u64, ConfigError> {
        let (cost, capacity) = (self.cost.unwrap_or(1), quota.capacity());
        // A capacity of 0 is deliberate: it denies everything.
        match cost > capacity && capacity > 0 {
            true => Err(cost_above_capacity(cost, capacity)),
            false => Ok(cost),
        }
    }

    /// Returns the most units that may be owed.
    fn checked_debt(&self, quota: &Quota) -> Result<u64, ConfigError> {
        let max = quota.most_debt();
        match self.debt.unwrap_or(max) {
            debt if debt > max => {
                let why = match max {
                    0 => "on a quota that cannot be in debt; drop `max_debt(..)`".to_owned(),
                    _ => format!("exceeds the maximum of {max} units; lower it"),
                };
                let message = format!("`max_debt({debt})` {why}");
                Err(ConfigError::new("debt-too-large", message))
            }
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
        Err(cannot_lease(conflict))
    }

    /// Returns how units are held, or why they cannot be.
    fn checked_hold(&self, quota: &Quota) -> Result<Option<Box<HoldDemand>>, ConfigError> {
        const LONGEST: Duration = Duration::from_secs(86_400);

        let Some(lifetime) = self.hold_for else {
            return Ok(None);
        };
        if quota.algorithm() == Algorithm::Penalty && self.readers.settle_by.is_some() {
            // Its settlements are strikes, which are never held.
            return Ok(None);
        }
        let conflict = if self.leases {
            "`lease()`, because leased units are charged already"
        } else if quota.penalty().is_some() {
            "a Penalty or a Pause, because it takes no units"
        } else if quota.paces() {
            "a LeakyBucket with a queue, because its units are places in time"
        } else if quota.is_concurrency() {
            "a Concurrency quota, because its units are held until the response has ended"
        } else if !(Duration::from_secs(1)..=LONGEST).contains(&lifetime) {
            let message = format!(
                "`hold_for({lifetime:?})` is outside 1 second to 1 day; requests that last longer are renewed, so the default of 60 seconds suits most"
            );
            return Err(ConfigError::new("hold-out-of-range", message));
        } else {
            let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            return Ok(Some(Box::new(HoldDemand::new(lifetime_ms, 0))));
        };
        let message = format!(
            "a policy whose requests hold units cannot have {conflict}; drop that, or `hold_for(..)` and `settle_by(..)`"
        );
        Err(ConfigError::new("cannot-hold", message))
    }

    /// Returns an error if denials cannot be strikes.
    fn check_own_strikes(&self, quota: &Quota) -> Result<(), ConfigError> {
        let conflict = if !self.strikes_on_denial {
            return Ok(());
        } else if quota.algorithm() != Algorithm::Penalty {
            "a quota that is no Penalty"
        } else if self.enforcement == Enforcement::ForNone {
            SHADOW_STRIKES
        } else {
            return Ok(());
        };
        Err(cannot_strike(conflict))
    }

    /// Returns for which callers it is enforced, or why it cannot be so.
    fn checked_enforcement(&self, quota: &Quota) -> Result<Enforcement, ConfigError> {
        if let Enforcement::For(percent) = self.enforcement {
            if !(1..=100).contains(&percent) {
                let message = format!(
                    "`enforce_for_percent({percent})` is outside 1 to 100; use `shadow()` to enforce the policy for no caller"
                );
                return Err(ConfigError::new("percent-out-of-range", message));
            }
            if self.shared {
                return Err(ConfigError::new(
                    "shared-percent",
                    "`enforce_for_percent(..)` chooses among keys, and a `shared()` policy has one for all callers; drop one of them",
                ));
            }
        }
        let is_allowed = matches!(self.on_store_failure, None | Some(OnStoreFailure::Allow));
        if self.enforcement == Enforcement::ForNone && !is_allowed {
            return Err(cannot_shadow(
                "`on_store_failure(..)`, because it lets requests pass while the store fails",
            ));
        }
        let enforcement = match self.enforcement {
            Enforcement::For(100) => Enforcement::ForAll,
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
    Err(cannot_strike(conflict).in_policy(&striking.name.text))
}

/// Returns an error if the list is empty, or if two policies have one name.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a Name>,
) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(&*name.text) {
            let name = &name.text;
            let message =
                format!("two policies named {name:?} would share their buckets; rename one");
            return Err(ConfigError::new("duplicate-policy", message));
        }
    }
    if seen.is_empty() {
        let message = "no policy; add at least one with `policy(..)`";
        return Err(ConfigError::new("no-policies", message));
    }
    Ok(())
}
