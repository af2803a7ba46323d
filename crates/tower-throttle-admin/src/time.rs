//! Times as the API has them: in whole milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns whole milliseconds, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the milliseconds since the UNIX epoch.
pub(crate) fn epoch_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
