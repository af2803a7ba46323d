//! The fixed window: a count that starts again when its window ends.

use std::time::Duration;

use super::{EXACT, Quota, Standing, State, per_period};
use crate::ConfigError;

/// At most `limit` units in each window; all of them come back at once when it ends.
///
/// The choice for plans and quotas ("5,000 a day"): easy to explain, cheap to
/// keep. **The danger** is the edge: a caller can spend one window's limit just
/// before it ends and the next one's just after, so up to twice the limit in a
/// short time. Use a [`TokenBucket`](crate::TokenBucket) where that matters.
///
/// A window starts with the first request that is charged, at the millisecond
/// in which it came; [`aligned`](Self::aligned) windows start by the clock.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::FixedWindow;
///
/// let _five_in_ten_seconds = FixedWindow::new(5, Duration::from_secs(10));
/// let _a_daily_quota_that_resets_at_midnight_utc = FixedWindow::per_day(5_000).aligned();
/// ```
///
/// **Limits**, checked when the quota is used: windows of whole milliseconds,
/// up to 100 years; a limit below 2^53. A limit of 0 refuses everything
/// that costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct FixedWindow {
    limit: u64,
    window: Duration,
    aligned: bool,
}

impl FixedWindow {
    /// `limit` units in each `window`.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            aligned: false,
        }
    }

    /// Starts windows at whole multiples of their length since the UNIX epoch, so
    /// hours start on the hour and days at midnight, UTC.
    ///
    /// All callers then start again at the same moment: expect a rush. Weeks
    /// start on Thursdays, as the epoch did.
    pub const fn aligned(mut self) -> Self {
        self.aligned = true;
        self
    }
}

per_period!(FixedWindow);

/// 100 years: ends of windows keep 13 digits until the year 2286.
const LONGEST_WINDOW_MS: u128 = 100 * 365 * 86_400_000;

impl TryFrom<FixedWindow> for Quota {
    type Error = ConfigError;

    fn try_from(fixed: FixedWindow) -> Result<Self, ConfigError> {
        let FixedWindow {
            limit,
            window,
            aligned,
        } = fixed;
        if window.is_zero() {
            return Err(ConfigError::ZeroPeriod);
        }
        if window.as_nanos() % 1_000_000 != 0 {
            return Err(ConfigError::WindowNotWholeMilliseconds { window });
        }
        let window_ms = match u64::try_from(window.as_millis()) {
            Ok(window_ms) if window.as_millis() <= LONGEST_WINDOW_MS => window_ms,
            _ => return Err(ConfigError::WindowTooLong { window }),
        };
        if limit >= EXACT {
            return Err(ConfigError::LimitTooLarge { limit });
        }
        Ok(Self(super::Rule::FixedWindow(Rule {
            limit,
            window_ms,
            aligned,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) limit: u64,
    pub(crate) window_ms: u64,
    pub(crate) aligned: bool,
}

impl Rule {
    pub(super) fn read(&self, stored: Option<State>, now_us: u64) -> Standing {
        let now_ms = now_us / 1_000;
        // The end of a window that starts now, and the latest that any may have.
        let latest_ms = if self.aligned {
            (now_ms / self.window_ms + 1) * self.window_ms
        } else {
            now_ms + self.window_ms
        };
        match stored {
            Some(State(used, ends_ms)) if ends_ms > now_ms => Standing {
                level: used,
                ends_ms: ends_ms.min(latest_ms),
                unsaved: ends_ms > latest_ms,
            },
            _ => Standing {
                level: 0,
                ends_ms: latest_ms,
                unsaved: false,
            },
        }
    }
}

pub(super) fn state(standing: Standing) -> State {
    State(standing.level, standing.ends_ms)
}

pub(super) fn drained_at_us(State(_, ends_ms): State) -> u64 {
    ends_ms.saturating_mul(1_000)
}

pub(super) fn until_end_us(standing: Standing, now_us: u64) -> u64 {
    standing
        .ends_ms
        .saturating_mul(1_000)
        .saturating_sub(now_us)
}
