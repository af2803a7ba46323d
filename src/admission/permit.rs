//! What [`Limiter::acquire`](crate::Limiter::acquire) returns.

use super::refund::RefundGuard;
use crate::Decision;

/// Admission by [`Limiter::acquire`](crate::Limiter::acquire), or the refusal.
///
/// Where a policy counts those in flight ([`Concurrency`](crate::Concurrency)),
/// hold it for as long as the work goes on: dropping it gives the units back.
/// Other policies' units stay taken.
#[derive(Debug)]
#[must_use = "it may be a refusal: ask `is_allowed()`; dropping it gives back what it holds"]
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

    /// Whether the caller may go on. If not, nothing is held.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The decision, made before the wait.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}
