//! From the policies of a limiter to what a caller is charged.

use std::borrow::Cow;

use super::{
    charges::{Charges, own_key},
    limits::Limits,
};
use crate::{Key, PolicyDecision, charge::Charge, overlay::Found, policy::Compiled};

impl Limits {
    /// Returns the charge of a policy on a caller's bucket: `units`, or the policy's own cost.
    pub(super) fn charge<'a>(
        &self,
        policy: &'a Compiled,
        key: &'a Key,
        units: Option<u64>,
    ) -> Charge<'a> {
        self.charge_or_ban(policy, key, units).0
    }

    /// Returns the charge of a policy on a caller's bucket, and the ban if operators have banned
    /// the caller.
    fn charge_or_ban<'a>(
        &self,
        policy: &'a Compiled,
        key: &'a Key,
        units: Option<u64>,
    ) -> (Charge<'a>, Option<PolicyDecision>) {
        let own_key = own_key(policy, key);
        let Found { quota, ban } = self.store.find_override(policy, own_key);
        let demand = match (quota, units) {
            (None, None) => Cow::Borrowed(&policy.demand),
            (quota, units) => Cow::Owned(policy.demand.chosen(quota, units)),
        };
        (policy.charge(Cow::Borrowed(own_key), demand), ban)
    }

    pub(super) fn charges<'a>(&'a self, key: &'a Key, units: Option<u64>) -> Charges<'a> {
        self.charges_holding(key, units, false)
    }

    /// Returns the charges of a check. `holds`: the costs are held, by the policies that can.
    pub(super) fn charges_holding<'a>(
        &'a self,
        key: &'a Key,
        units: Option<u64>,
        holds: bool,
    ) -> Charges<'a> {
        let mut charges = Charges::default();
        for policy in &*self.policies {
            let (mut charge, ban) = self.charge_or_ban(policy, key, units);
            if holds {
                charge.hold(charge.cost());
            }
            if policy.is_enforced_for(&charge.key) {
                charges.bans.extend(ban);
                charges.enforced.push(charge);
            } else {
                charges.shadows.push(charge);
            }
        }
        charges
    }
}
