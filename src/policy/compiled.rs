//! A policy that has passed its check, and the charges that it makes.

use std::borrow::Cow;

use crate::{
    Key, OnStoreFailure,
    charge::{Charge, Demand},
    enforcement::Enforcement,
    policy_name::Name,
};

/// A checked policy.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) name: Name,
    /// The demand, unless the request chooses another.
    pub(crate) demand: Demand,
    /// The most units that may be owed.
    pub(crate) debt: u64,
    pub(crate) shared: bool,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) leases: bool,
    pub(crate) enforcement: Enforcement,
    /// Whether requests choose among several quotas.
    pub(crate) has_tiers: bool,
    /// Whether the held units of its requests are settled by their responses.
    pub(crate) settles: bool,
}

impl Compiled {
    /// Returns whether the policy denies a caller under this enforcement. If not, it is a shadow
    /// policy for the caller.
    pub(crate) fn is_enforced_for(&self, key: &Key, enforcement: Enforcement) -> bool {
        enforcement.includes(self.name.hash, key.as_bytes())
    }

    /// Holds the cost instead of charging it, if it is settled and the policy holds.
    pub(crate) fn held(&self, mut demand: Demand) -> Demand {
        let units = demand.cost;
        if let Some(hold) = demand.hold.as_mut().filter(|_| self.settles) {
            hold.units = units;
        }
        demand
    }

    /// Creates a charge to a caller's bucket.
    pub(crate) fn charge<'a>(&self, key: Cow<'a, Key>, demand: Cow<'a, Demand>) -> Charge<'a> {
        Charge {
            policy: self.name.clone(),
            key,
            demand,
            on_store_failure: self.on_store_failure,
            leases: self.leases,
        }
    }
}
