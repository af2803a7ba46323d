//! From the policies of a limiter to what a caller is charged.

use std::borrow::Cow;

use super::{
    charges::{Charges, own_key},
    limits::Limits,
};
use crate::{
    Key, PolicyDecision,
    charge::Charge,
    overrides::{Found, SeenOverrides},
    policy::Compiled,
};

/// What one policy charges a caller.
pub(super) struct PolicyCharge<'a> {
    pub(super) charge: Charge<'a>,
    /// Whether it is enforced for this caller.
    pub(super) is_enforced: bool,
    /// The ban of the caller by an operator.
    ban: Option<PolicyDecision>,
}

impl Limits {
    /// Returns the charge of a policy on a caller's bucket: `units`, or the policy's own cost.
    /// `None`: a control document has switched the policy off.
    pub(super) fn charge<'a>(
        &self,
        overrides: &SeenOverrides,
        policy: &'a Compiled,
        key: &'a Key,
        units: Option<u64>,
    ) -> Option<PolicyCharge<'a>> {
        let given = overrides.policy(&policy.name.text);
        let enforcement = policy.enforcement_under(given)?;
        let own_key = own_key(policy, key);
        let Found { quota, ban } = self.store.find_override(policy, given, own_key);
        let demand = match (quota, units) {
            (None, None) => Cow::Borrowed(&policy.demand),
            (quota, units) => Cow::Owned(policy.demand.chosen(quota, units)),
        };
        Some(PolicyCharge {
            charge: policy.charge(Cow::Borrowed(own_key), demand),
            is_enforced: policy.is_enforced_for(own_key, enforcement),
            ban,
        })
    }

    pub(super) fn charges<'a>(
        &'a self,
        overrides: &SeenOverrides,
        key: &'a Key,
        units: Option<u64>,
    ) -> Charges<'a> {
        let mut charges = Charges::default();
        for policy in &*self.policies {
            match self.charge(overrides, policy, key, units) {
                None => charges.is_any_off = true,
                Some(asked) if asked.is_enforced => {
                    charges.bans.extend(asked.ban);
                    charges.enforced.push(asked.charge);
                }
                Some(asked) => charges.shadows.push(asked.charge),
            }
        }
        charges
    }
}
