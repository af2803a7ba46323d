//! What a check charges, and the bans that deny it.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Engine;
use crate::{
    Decision, Key, PolicyDecision, Quota,
    charge::{Charge, Demand, Operation},
    enforcement::Enforcement,
    overrides::PolicyOverrides,
    policy::Compiled,
    policy_name::Name,
    util::interned::Interned,
};

/// The charges of a check: one bucket for each policy that applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges<'a> {
    /// The charges of the check that decides.
    pub(crate) enforced: SmallVec<[Charge<'a>; 4]>,
    /// The charges of shadow policies. Each is decided on its own.
    pub(crate) shadows: Vec<Charge<'a>>,
    /// The bans of the caller by operators, under enforced policies.
    bans: Vec<PolicyDecision>,
}

impl Engine {
    /// Adds the charge of a policy for a caller. `demand` returns the demand on the bucket, given
    /// the quota that an operator gave the caller. Returns `false` if it is a shadow policy for the
    /// caller and cannot be checked, as its quota holds permits.
    ///
    /// `charges` is the caller's, as lists that are returned would be copied.
    #[inline(always)]
    pub(crate) fn charge<'a>(
        &self,
        policy: &'a Compiled,
        (given, enforcement): (Option<&PolicyOverrides>, Enforcement),
        key: Cow<'a, Key>,
        demand: impl FnOnce(Option<&Interned<Quota>>) -> Cow<'a, Demand>,
        charges: &mut Charges<'a>,
    ) -> bool {
        let (quota, ban) = self.store.find_override(policy, given, &key);
        let demand = demand(quota);
        if policy.is_enforced_for(&key, enforcement) {
            if let Some(ban) = ban {
                charges.bans.push(ban);
            }
            charges.enforced.push(policy.charge(key, demand));
        } else if demand.quota.is_concurrency() {
            return false;
        } else {
            charges.shadows.push(policy.charge(key, demand));
        }
        true
    }
}

impl<'a> Charges<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.enforced.is_empty() && self.shadows.is_empty()
    }

    /// Returns all charges, including those of shadow policies.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Charge<'a>> {
        self.enforced.iter().chain(&self.shadows)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Charge<'a>> {
        self.enforced.iter_mut().chain(&mut self.shadows)
    }

    /// Drops the charges and bans of policies that are not asked.
    pub(crate) fn drop_policies(&mut self, exempt: &[&Name]) {
        let is_asked = |name: &str| !exempt.iter().any(|policy| *policy.text == *name);
        self.enforced.retain(|charge| is_asked(charge.policy()));
        self.shadows.retain(|charge| is_asked(charge.policy()));
        self.bans.retain(|ban| is_asked(ban.name()));
    }

    /// Returns the charges under quotas that `is_meant` chooses, with other demands.
    pub(super) fn with_demands(
        &self,
        is_meant: impl Fn(&Quota) -> bool,
        demand: impl Fn(&Charge<'_>) -> Demand,
    ) -> Charges<'_> {
        let with_demand = |charge| {
            let is_meant = is_meant(&Charge::quota(charge));
            is_meant.then(|| Charge::with_demand(charge, Cow::Owned(demand(charge))))
        };
        Charges {
            enforced: self.enforced.iter().filter_map(with_demand).collect(),
            shadows: self.shadows.iter().filter_map(with_demand).collect(),
            bans: Vec::new(),
        }
    }

    pub(crate) fn to_owned(&self) -> Charges<'static> {
        let owned = |charge: &Charge<'_>| charge.clone().into_owned();
        Charges {
            enforced: self.enforced.iter().map(owned).collect(),
            shadows: self.shadows.iter().map(owned).collect(),
            bans: self.bans.clone(),
        }
    }

    /// Returns the key that an enforced policy charges.
    pub(crate) fn key_of(&self, policy: &Name) -> Option<&Key> {
        let mut charges = self.enforced.iter();
        let charge = charges.find(|charge| charge.policy == *policy);
        charge.map(|charge| &*charge.key)
    }

    /// Returns the denial of an operation that asks for units, if operators have banned the caller.
    /// Other operations still charge what the caller has used, and refund what it has not.
    pub(crate) fn decision_by_bans(&self, operation: Operation) -> Option<Decision> {
        (self.is_banned() && operation.asks_for_units())
            .then(|| Decision::by_bans(self.bans.clone()))
    }

    pub(crate) fn is_banned(&self) -> bool {
        !self.bans.is_empty()
    }
}
