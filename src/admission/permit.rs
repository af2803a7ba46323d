//! What [`Limiter::acquire`](crate::Limiter::acquire) returns.

use super::refund::HeldPermits;
use crate::Decision;

/// The outcome of [`Limiter::acquire`](crate::Limiter::acquire): an admission or a denial.
///
/// Under a [`Concurrency`](crate::Concurrency) policy, keep it until the work has ended: dropping it
/// releases the permits. Units of other policies stay taken.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Concurrency, Limiter, MemoryStore};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let exports = Limiter::new(MemoryStore::new(), Concurrency::new(1));
/// let permit = exports.acquire("ann", Duration::from_secs(1)).await?;
/// assert!(permit.is_allowed());
/// // The export runs here. Meanwhile, a second one is denied.
/// assert!(!exports.acquire("ann", Duration::ZERO).await?.is_allowed());
/// drop(permit);
/// assert!(exports.acquire("ann", Duration::from_secs(1)).await?.is_allowed());
/// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "it may be a denial: check `is_allowed()`; dropping it releases its permits"]
pub struct Permit {
    decision: Decision,
    _permits: HeldPermits,
}

impl Permit {
    pub(crate) const fn new(decision: Decision, permits: HeldPermits) -> Self {
        Self {
            decision,
            _permits: permits,
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
