//! The fixed window: a count that starts again when its window ends.

use std::time::Duration;

use super::{
    Quota, per_period,
    window::{Start, WindowParams},
};
use crate::ConfigError;

/// At most `limit` units in each window; all of them come back at once when it ends.
///
/// Choose it for plans ("5,000 a day"): it is easy to explain and cheap to store. **The danger**
/// is the edge. A caller can use one window's limit just before it ends, and the next one's just
/// after: up to twice the limit in a short time. If that matters, use a
/// [`TokenBucket`](crate::TokenBucket) or a [`SlidingWindow`](crate::SlidingWindow).
///
/// A window starts with the first request that is charged, at the millisecond in which it came.
/// [`aligned`](Self::aligned) windows and those of the calendar start by the clock.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::FixedWindow;
///
/// let _five_in_ten_seconds = FixedWindow::new(5, Duration::from_secs(10));
/// let _a_daily_quota_that_resets_at_midnight_utc = FixedWindow::per_calendar_day(5_000);
/// let _that_resets_at_midnight_of_utc_plus_2 =
///     FixedWindow::per_calendar_day(5_000).utc_offset_minutes(120);
/// let _the_same_at_a_time_of_the_day_for_each_caller =
///     FixedWindow::per_calendar_day(5_000).spread();
/// ```
///
/// **Limits**, checked when the quota is used: windows of whole milliseconds,
/// up to 100 years; a limit below 2^53. A limit of 0 denies every request
/// that costs more than 0.
///
/// **Changed numbers.** Used units stay used until the window ends: at its old end, or at
/// the end of a window that starts with the first check under the new numbers, whichever is
/// sooner. A debt ends with its window.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FixedWindow {
    limit: u64,
    window: Duration,
    start: Start,
    utc_offset_minutes: i32,
    spread: bool,
}

const MINUTES_OF_DAY: u32 = 24 * 60;
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// The longest month, so that header fields never announce too high a rate.
const MONTH: Duration = Duration::from_secs(31 * 86_400);
/// The epoch was a Thursday.
pub(super) const FIRST_MONDAY_MS: u64 = 4 * 86_400_000;

impl FixedWindow {
    /// Creates windows that are `window` long and grant `limit` units each.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            start: Start::FirstUse,
            utc_offset_minutes: 0,
            spread: false,
        }
    }

    /// Allows `limit` units per calendar day, from midnight to midnight, UTC.
    pub const fn per_calendar_day(limit: u64) -> Self {
        Self::per_day(limit).aligned()
    }

    /// Allows `limit` units per calendar week, from Monday to Sunday, UTC (ISO 8601).
    pub const fn per_calendar_week(limit: u64) -> Self {
        Self {
            start: Start::Aligned {
                offset_ms: FIRST_MONDAY_MS,
            },
            ..Self::new(limit, WEEK)
        }
    }

    /// Allows `limit` units per calendar month, UTC. Header fields announce a window of 31 days.
    pub const fn per_calendar_month(limit: u64) -> Self {
        Self {
            start: Start::Month,
            ..Self::new(limit, MONTH)
        }
    }

    /// Starts windows at whole multiples of their length since the UNIX epoch, so hours start
    /// on the hour and days at midnight, UTC. Default: a window starts with the caller's first
    /// request. [`utc_offset_minutes`](Self::utc_offset_minutes) sets another clock than UTC.
    ///
    /// The windows of all callers then end at the same instant: expect a rush, or
    /// [spread](Self::spread) it.
    pub const fn aligned(mut self) -> Self {
        self.start = Start::Aligned { offset_ms: 0 };
        self
    }

    /// Starts windows by the clock of a place that is this many minutes ahead of UTC: `120` for
    /// `+02:00`, and `-300` for `-05:00`. Default: 0, which is UTC.
    ///
    /// Only for windows that start by the clock, and for less than a day. Otherwise it is an error
    /// when the quota is used.
    ///
    /// A time zone with daylight-saving time has two offsets. For its days, choose [a quota for each
    /// request](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/questions/).
    pub const fn utc_offset_minutes(mut self, minutes: i32) -> Self {
        self.utc_offset_minutes = minutes;
        self
    }

    /// Starts the windows of each caller at an instant of its own, so that they do not all end
    /// at once. Default: the same instant for all callers. The instant is computed from the
    /// caller's key, and is the same in every process.
    ///
    /// Only for windows that start by the clock. For others it is an error when the quota is
    /// used.
    pub const fn spread(mut self) -> Self {
        self.spread = true;
        self
    }
}

per_period!(FixedWindow);

impl TryFrom<FixedWindow> for Quota {
    type Error = ConfigError;

    fn try_from(fixed: FixedWindow) -> Result<Self, ConfigError> {
        let FixedWindow {
            limit,
            window,
            start,
            utc_offset_minutes,
            spread,
        } = fixed;
        if spread && start == Start::FirstUse {
            return Err(ConfigError::new(
                "spread-unaligned",
                "`spread()` on windows that start with each caller's first request; add `aligned()`, or drop `spread()`",
            ));
        }
        if utc_offset_minutes != 0 && start == Start::FirstUse {
            return Err(ConfigError::new(
                "utc-offset-unaligned",
                "`utc_offset_minutes(..)` on windows that start with each caller's first request; add `aligned()`, or drop `utc_offset_minutes(..)`",
            ));
        }
        if utc_offset_minutes.unsigned_abs() >= MINUTES_OF_DAY {
            return Err(ConfigError::new(
                "utc-offset-too-large",
                format!(
                    "`utc_offset_minutes({utc_offset_minutes})` is a day or more; use a smaller offset"
                ),
            ));
        }
        Ok(Self(super::Params::FixedWindow(WindowParams {
            start,
            utc_offset_ms: i64::from(utc_offset_minutes) * 60_000,
            spread,
            ..WindowParams::new(limit, window)?
        })))
    }
}
