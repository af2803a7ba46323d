//! What a caller is charged.

use std::borrow::Cow;
#[cfg(feature = "control")]
use std::mem;

use smallvec::SmallVec;

use crate::{
    Decision, Key, PolicyDecision, StoreError,
    charge::{Charge, Operation},
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
    /// The bans of the caller by operators.
    pub(super) bans: Vec<PolicyDecision>,
    /// Whether a control document has switched a policy off.
    pub(super) is_any_off: bool,
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
pub(super) fn own_key<'a>(policy: &Compiled, key: &'a Key) -> &'a Key {
    static EVERYONE: Key = Key::everyone();

    if policy.shared { &EVERYONE } else { key }
}

impl Charges<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.enforced.is_empty() && self.shadows.is_empty()
    }

    /// Returns the decision of an operation, if operators have banned the caller. It still pays for
    /// what it has used, and gets back what it has not.
    pub(super) fn decide_by_bans(&mut self, operation: Operation) -> Option<Decision> {
        let asks = matches!(
            operation,
            Operation::Take | Operation::TakeUpTo | Operation::Peek
        );
        #[cfg(feature = "control")]
        if asks && !self.bans.is_empty() {
            return Some(Decision::by_bans(mem::take(&mut self.bans)));
        }
        let _ = asks;
        None
    }

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
