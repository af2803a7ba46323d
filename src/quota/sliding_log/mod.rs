//! The sliding log, as users set it.

mod params;

use std::time::Duration;

pub(crate) use self::params::SlidingLogParams;
use super::{Params, Quota, per_period, window::checked_window_ms};
use crate::ConfigError;

/// At most `limit` units in any `window`, exactly.
///
/// Each request that takes units is an entry: its time and its cost. Entries older than the
/// window are dropped before the rest is counted. Denied requests make no entry. Choose it if
/// the limit is small and must be exact. For large limits use a
/// [`SlidingWindow`](crate::SlidingWindow).
///
/// **The price** is an entry for each request within the window, whatever it
/// costs: 12 bytes in Redis, 16 in memory. Requests of the same microsecond share
/// an entry. Each check reads all entries of its caller, and writes them if it is
/// allowed.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::SlidingLog;
///
/// let _five_in_any_minute = SlidingLog::new(5, Duration::from_secs(60));
/// ```
///
/// **Limits**, checked when the quota is used:
///
/// - windows of whole milliseconds, up to 100 years;
/// - a limit of at most 10,000 units, unless [`max_entries`](Self::max_entries) allows more;
/// - limit and [debt](crate::Policy::max_debt) together below 2^40 units.
///
/// **Debt.** A caller in debt has at most `limit` entries. With that many, a debit adds to the
/// newest entry and moves it to the present. So the units of that entry count for one window
/// after the last debit.
///
/// **Changed numbers.** Existing entries count by the new numbers, until the window in which they
/// were stored has passed. So a longer window is exact for units that are used after the change.
/// Earlier units may be forgotten early, and then a caller gets the new limit once more.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SlidingLog {
    limit: u64,
    window: Duration,
    max_entries: u64,
}

pub(super) const DEFAULT_MAX_ENTRIES: u64 = 10_000;

impl SlidingLog {
    /// Allows `limit` units in any `window`.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            max_entries: DEFAULT_MAX_ENTRIES,
        }
    }

    /// Sets the highest limit. A caller whose requests cost one unit each has as many entries
    /// as the limit has units. Default: 10,000, which is 120 kB in Redis; at most 2^24.
    ///
    /// **The danger** of more: each request of such a caller reads and writes all of its
    /// entries, and Redis does nothing else meanwhile. If each request costs many units, there
    /// are fewer entries, and a higher value is safe.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = entries;
        self
    }
}

per_period!(SlidingLog);

/// The most entries of one key. In Redis they are a string of 200 MB.
const MOST_ENTRIES: u64 = 1 << 24;

impl TryFrom<SlidingLog> for Quota {
    type Error = ConfigError;

    fn try_from(log: SlidingLog) -> Result<Self, ConfigError> {
        let SlidingLog {
            limit,
            window,
            max_entries,
        } = log;
        let window_ms = checked_window_ms(window)?;
        let max = max_entries.min(MOST_ENTRIES);
        if limit > max {
            let message = format!(
                "a SlidingLog limit of {limit} exceeds the maximum of {max} entries; use a SlidingWindow, or raise `max_entries(..)`"
            );
            return Err(ConfigError::new("log-too-large", message));
        }
        Ok(Self(Params::SlidingLog(SlidingLogParams {
            limit,
            window_us: window_ms * 1_000,
        })))
    }
}
