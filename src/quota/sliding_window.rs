//! The sliding window, by two counters.

use std::time::Duration;

use super::{
    EXACT, Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, at_rate, until_ms},
    per_period,
    window::checked_window_ms,
};
use crate::ConfigError;

/// At most `limit` units in any `window`, estimated from two counters.
///
/// Time is cut into windows by the clock. What the last one counted is taken to
/// have been spread evenly over it, and the part of it that lies within one
/// window's length of now is added to what this one has counted, rounded up.
/// The choice where a [`FixedWindow`](crate::FixedWindow)'s edge is too sharp
/// and a [`SlidingLog`](crate::SlidingLog) too large: it keeps three numbers,
/// whatever the limit.
///
/// **The error** against an exact log: the estimate is right for even traffic.
/// In the worst case, all of the last window's requests came at its end (then
/// it admits up to twice the limit within one window's length, as a fixed
/// window does) or at its start (then it refuses what an exact log would
/// admit). Over random traffic at 0.5 to 3 times the limit, the tests saw at
/// most so much within any window's length, and these decisions differ from an
/// exact log's: 160% of a limit of 5 (a fifth of the decisions at 0.8 times the
/// limit), 140% of 20 (8%), 116% of 100 (1%), 105% of 1,000 (none). In overload
/// about as many are admitted as by the log, but a third of the time others.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::SlidingWindow;
///
/// let _a_hundred_in_any_minute = SlidingWindow::per_minute(100);
/// let _five_in_any_ten_seconds = SlidingWindow::new(5, Duration::from_secs(10));
/// ```
///
/// **Limits**, checked when the quota is used: windows of whole milliseconds,
/// up to 100 years; four times the limit times the window in milliseconds
/// below 2^53.
///
/// **Changed numbers.** What was counted in a window that overlaps the present
/// one stays counted in it; in one that overlaps the one before, in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct SlidingWindow {
    limit: u64,
    window: Duration,
}

impl SlidingWindow {
    /// `limit` units in any `window`.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window }
    }
}

per_period!(SlidingWindow);

impl TryFrom<SlidingWindow> for Quota {
    type Error = ConfigError;

    fn try_from(sliding: SlidingWindow) -> Result<Self, ConfigError> {
        let SlidingWindow { limit, window } = sliding;
        let window_ms = checked_window_ms(window)?;
        // A debt of as much again must be exact, too, and the sum of both windows.
        match limit.checked_mul(4 * window_ms) {
            Some(product) if product < EXACT => {}
            _ => return Err(ConfigError::WindowTooLarge { limit, window }),
        }
        Ok(Self(super::Params::SlidingWindow(SlidingWindowParams {
            limit,
            window_ms,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingWindowParams {
    pub(crate) limit: u64,
    pub(crate) window_ms: u64,
}

impl SlidingWindowParams {
    /// The part of `count` that lies within the last `left_ms` of its window.
    const fn part(&self, count: u64, left_ms: u64) -> u64 {
        count.saturating_mul(left_ms).div_ceil(self.window_ms)
    }

    /// What the present window has counted.
    fn current(&self, standing: &BucketState, now_us: u64) -> u64 {
        let left_ms = standing.mark.saturating_sub(now_us / 1_000);
        standing
            .level
            .saturating_sub(self.part(standing.more, left_ms))
    }

    /// How much of a window may be left for `count` of the one before to weigh
    /// no more than `most`.
    fn fits_left_ms(&self, count: u64, most: u64) -> u64 {
        if count <= most {
            self.window_ms
        } else {
            most.saturating_mul(self.window_ms) / count
        }
    }
}

/// Mark: the end of the present window. More: what the one before counted.
impl Arithmetic for SlidingWindowParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    /// Two such counts times the window are exact.
    fn highest(&self) -> u64 {
        (EXACT - 1) / (2 * self.window_ms)
    }

    fn read(&self, stored: Option<&[u64]>, at: ReadContext) -> BucketState {
        let window_ms = self.window_ms;
        let ends_ms = (at.now_ms() / window_ms + 1) * window_ms;
        let (current, previous, is_ahead) = match stored {
            Some(&[stored_ends_ms, current, previous]) => {
                if stored_ends_ms.saturating_add(window_ms) > ends_ms {
                    (current, previous, stored_ends_ms > ends_ms)
                } else if stored_ends_ms.saturating_add(2 * window_ms) > ends_ms {
                    (0, current, false)
                } else {
                    (0, 0, false)
                }
            }
            _ => (0, 0, false),
        };
        // Exact also where the limit was higher once.
        let (current, previous) = (current.min(self.highest()), previous.min(self.highest()));
        BucketState {
            level: current + self.part(previous, ends_ms - at.now_ms()),
            mark: ends_ms,
            more: previous,
            unsaved: is_ahead,
        }
    }

    fn write(
        &self,
        _: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: ReadContext,
    ) -> State {
        let current = change.applied_to(self.current(standing, at.now_us));
        State::from_buf([standing.mark, current, standing.more])
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let &[ends_ms, current, _] = state else {
            return 0;
        };
        let later_ms = if current > 0 { self.window_ms } else { 0 };
        ends_ms.saturating_add(later_ms).saturating_mul(1_000)
    }

    fn retry_us(&self, standing: &BucketState, most: u64, now_us: u64) -> Option<u64> {
        let (current, ends_ms) = (self.current(standing, now_us), standing.mark);
        let fits_at_ms = match most.checked_sub(current) {
            Some(most) => ends_ms.saturating_sub(self.fits_left_ms(standing.more, most)),
            None => ends_ms + self.window_ms - self.fits_left_ms(current, most),
        };
        Some(until_ms(fits_at_ms, now_us))
    }

    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let is_in_use = self.current(standing, now_us) > 0;
        let later_ms = if is_in_use { self.window_ms } else { 0 };
        until_ms(standing.mark + later_ms, now_us)
    }

    /// The larger of the time to the next unit and the remaining ones at the
    /// sustained rate.
    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let left = self.limit.saturating_sub(standing.level);
        let at_rate_us = at_rate(left, self.limit, self.window_ms * 1_000);
        let less = standing.level.checked_sub(1);
        let next_us = less.and_then(|less| self.retry_us(standing, less, now_us));
        at_rate_us.max(next_us.unwrap_or(0))
    }

    /// Each window counts for itself.
    fn missing(&self, standing: &BucketState, least: &BucketState, now_us: u64) -> u64 {
        let present = self.current(standing, now_us);
        self.current(least, now_us).saturating_sub(present)
    }

    /// Only what the present window has counted.
    fn returnable(
        &self,
        _: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        at: ReadContext,
    ) -> u64 {
        if at.taken_at == 0 || at.taken_at == standing.mark {
            cost.min(self.current(standing, at.now_us))
        } else {
            0
        }
    }
}
