//! Pauses by hand: nothing is admitted until a pause ends.

use super::{ConfigError, PenaltyParams};
use crate::quota::{Params, Quota};

/// Denies a key while it is [paused](crate::Limiter::pause): for calls to a partner who asks for a
/// pause with `Retry-After`.
///
/// Callers that [wait](crate::Limiter::acquire) wait for the end of a pause. Those that wait for
/// another policy beside it are stopped, too: when their turn comes, they ask the store once more, and
/// wait again if the key was paused meanwhile. So a pause stops the waiters of a whole fleet.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_throttle::{LeakyBucket, Limiter, MemoryStore, Pause, Policy};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let calls = Limiter::builder()
///     .store(MemoryStore::new()) // in a fleet, a `RedisStore`
///     .policy(Policy::new("partner-pace", LeakyBucket::per_second(20).queue(100)))
///     .policy(Policy::new("partner-pauses", Pause))
///     .build()?;
///
/// // The partner asked for a pause.
/// let pause = Duration::from_millis(100);
/// let paused_at = Instant::now();
/// calls.pause("partner", pause).await?;
/// assert!(calls.acquire("partner", Duration::from_secs(10)).await?.is_allowed());
/// assert!(paused_at.elapsed() >= pause);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// It admits everything else, takes no units, and appears in header fields only while it denies. Keys without a pause
/// have no bucket. Where a caller has to wait, its admission costs one more call to the store, and
/// only with such a policy. The units that it took before the pause are refunded, except those of the
/// place that it waited for: nobody can use that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause;

impl TryFrom<Pause> for Quota {
    type Error = ConfigError;

    fn try_from(_: Pause) -> Result<Self, ConfigError> {
        Ok(Self(Params::Penalty(PenaltyParams {
            pauses: true,
            ..PenaltyParams::BY_HAND
        })))
    }
}
