//! Answers in the form of other rate limiters, for moving from one of them.
//!
//! ```
//! use tower_throttle::{Limiter, MemoryStore, TokenBucket, compat};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(5));
//! let decision = limiter.check("ann").await?;
//! assert_eq!(compat::cl_throttle(&decision), Some([0, 5, 4, -1, 12]));
//! # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
//! ```

use std::time::Duration;

use crate::Decision;

/// Returns the five integers of redis-cell's `CL.THROTTLE` for the most restrictive policy: the one
/// that denied with the longest wait, or else the one with the fewest units left. `None` if no
/// policy applied. The integers are:
///
/// 1. 1 if it denied, else 0,
/// 2. its capacity,
/// 3. the units that remain,
/// 4. seconds until a retry can succeed, rounded up; -1 if it allowed, and if waiting does
///    not help,
/// 5. seconds until nothing is taken any more, rounded up.
#[must_use]
pub fn cl_throttle(decision: &Decision) -> Option<[i64; 5]> {
    let policy = decision.binding()?;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let seconds = |wait: Duration| number(wait.as_micros().div_ceil(1_000_000) as u64);
    Some([
        i64::from(policy.is_denied()),
        number(policy.capacity()),
        number(policy.remaining()),
        policy.retry_after().map_or(-1, seconds),
        seconds(policy.reset_after()),
    ])
}
