//! The instant by which a call must be answered.

use std::time::Duration;

use tokio::time::Instant;

/// Tokio's timers are this exact.
const TICK: Duration = Duration::from_millis(1);
/// Stands in for a deadline that the clock cannot express.
const FAR_AWAY: Duration = Duration::from_secs(86_400 * 365);

/// Each step of an attempt to connect takes at most this long, or four timeouts of a check, as
/// far as `LONGEST_CONNECT_TIMEOUT`.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(timeout).unwrap_or(now + FAR_AWAY))
    }

    /// Returns a deadline that is `by` later.
    pub(super) fn postponed(self, by: Duration) -> Self {
        Self(self.0.checked_add(by).unwrap_or(self.0))
    }

    pub(super) fn earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(super) fn later(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    pub(super) fn has_passed(self, now: Instant) -> bool {
        self.0 <= now
    }

    /// Whether this one is earlier, by more than a tick of the timers.
    pub(super) fn is_before(self, other: Self) -> bool {
        self.0 + TICK < other.0
    }

    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns when a call with this deadline and `timeout` began.
    pub(super) fn began(self, timeout: Duration) -> Option<Instant> {
        self.0.checked_sub(timeout)
    }
}
