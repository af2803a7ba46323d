//! What a caller is charged.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Limits;
use crate::{
    Key, StoreError,
    charge::{Charge, Demand, Operation},
    error::StoreErrorKind,
    policy::Compiled,
};

/// What a caller is charged.
#[derive(Default)]
pub(super) struct Charges<'a> {
    /// The charges of the check that decides.
    pub(super) enforced: SmallVec<[Charge<'a>; 2]>,
    /// Each is a check of its own.
    pub(super) shadows: Vec<Charge<'a>>,
}

/// Returns the charge of a policy on a caller's bucket, with the policy's own quota and cost.
#[inline]
pub(super) fn charge<'a>(policy: &'a Compiled, key: &'a Key) -> Charge<'a> {
    policy.charge(
        Cow::Borrowed(own_key(policy, key)),
        Cow::Borrowed(&policy.demand),
    )
}

/// Returns the key of the caller's bucket.
#[inline]
fn own_key<'a>(policy: &Compiled, key: &'a Key) -> &'a Key {
    static EVERYONE: Key = Key::everyone();

    if policy.shared { &EVERYONE } else { key }
}

impl Limits {
    /// Returns the charge of a policy on a caller's bucket: `units`, or the policy's own cost.
    pub(super) fn charge<'a>(
        &self,
        policy: &'a Compiled,
        key: &'a Key,
        units: Option<u64>,
    ) -> Charge<'a> {
        let Some(units) = units else {
            return charge(policy, key);
        };
        let demand = Demand {
            strikes: policy.demand.strikes,
            ..Demand::of_request(policy.demand.quota.clone(), units)
        };
        policy.charge(Cow::Borrowed(own_key(policy, key)), Cow::Owned(demand))
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
            let charge = self.charge(policy, key, units);
            // Also if nothing of it is held: what others hold counts.
            let held = if holds { charge.cost() } else { 0 };
            let hold = policy.hold_before(&charge, held);
            match policy.is_enforced_for(&charge.key) {
                true => charges.enforced.extend(hold.into_iter().chain([charge])),
                false => charges.shadows.extend(hold.into_iter().chain([charge])),
            }
        }
        charges
    }
}

impl Charges<'_> {
    pub(super) fn leave_out_penalties(&mut self) {
        let is_of_units = |charge: &Charge<'_>| charge.demand.quota.penalty().is_none();
        self.enforced.retain(|charge| is_of_units(charge));
        self.shadows.retain(is_of_units);
    }

    /// Returns an error if a policy counts permits, which only [`Limiter::acquire`] can hold, or if
    /// no policy has the units that are asked for.
    pub(super) fn check(&self, operation: Operation) -> Result<(), StoreError> {
        let mut enforced = self.enforced.iter().map(|charge| &charge.demand.quota);
        if enforced.clone().any(|quota| quota.is_concurrency()) {
            return Err(StoreError::new(StoreErrorKind::Unsupported));
        }
        let has_units = match operation {
            Operation::TakeUpTo | Operation::Refund | Operation::Debit => {
                enforced.any(|quota| quota.penalty().is_none()) || !self.shadows.is_empty()
            }
            _ => true,
        };
        match has_units {
            true => Ok(()),
            false => Err(StoreError::new(StoreErrorKind::OnlyPenalties)),
        }
    }
}
