//! What [`Limiter::acquire`](crate::Limiter::acquire) returns.

use super::refund::RefundGuard;
use crate::Decision;

/// What [`Limiter::acquire`](crate::Limiter::acquire) returns: an admission or a denial.
///
/// Under a [`Concurrency`](crate::Concurrency) policy, hold it for as long as the work goes
/// on: dropping it releases the permits. Units of other policies stay taken.
#[derive(Debug)]
#[must_use = "it may be a denial: check `is_allowed()`; dropping it releases its permits"]
pub struct Permit {
    decision: Decision,
    _taken: Option<RefundGuard>,
}

impl Permit {
    pub(crate) const fn new(decision: Decision, taken: Option<RefundGuard>) -> Self {
        Self {
            decision,
            _taken: taken,
        }
    }

    /// Returns whether the caller was admitted. If not, nothing is held.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns the decision, which was made before the wait.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl AsRef<Decision> for Permit {
    fn as_ref(&self) -> &Decision {
        &self.decision
    }
}
