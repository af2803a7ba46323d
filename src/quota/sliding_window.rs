//! The sliding window, estimated from two counters.

use std::time::Duration;

use super::{
    EXACT, Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, at_rate, until_ms},
    per_period,
    window::{StoredEnd, checked_window_ms},
};
use crate::ConfigError;

/// At most `limit` units in any `window`, estimated from two counters.
///
/// The clock divides time into windows. The estimate assumes that the units of the last window
/// came evenly. It adds the part of them that is less than one window old to the units of the
/// present window, rounded up. Choose it if the edge of a [`FixedWindow`](crate::FixedWindow) is
/// too sharp, and a [`SlidingLog`](crate::SlidingLog) too large: it keeps three numbers,
/// whatever the limit.
///
/// **The error** against an exact log: the estimate is right for even traffic. In the worst
/// case, all requests of the last window came at its end. Then up to twice the limit is admitted
/// within the length of a window, as by a fixed window. If they all came at its start, requests
/// are denied that a log would admit.
///
/// This is what the tests saw for random traffic at 0.5 to 3 times the limit:
///
/// | limit | most that was admitted within any window's length | decisions that differ from an exact log's, at 0.8 times the limit |
/// |--:|--:|--:|
/// | 5 | 160% | a fifth |
/// | 20 | 140% | 8% |
/// | 100 | 116% | 1% |
/// | 1,000 | 105% | none |
///
/// In overload about as many requests are admitted as by the log, but in a third of the cases
/// other ones.
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
/// **Changed numbers.** Units of a stored window that overlaps the present window count in the
/// present window. Units of one that overlaps the last window count in the last window. If the window
/// becomes longer, units that were used before the change are forgotten after one or two of the old
/// windows, and then a caller gets the new limit once more.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SlidingWindow {
    limit: u64,
    window: Duration,
}

impl SlidingWindow {
    /// Allows `limit` units in any `window`.
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
        // A debt of the same size must be exact, and also the sum of both windows.
        match limit.checked_mul(4 * window_ms) {
            Some(product) if product < EXACT => {}
            _ => {
                let message = format!(
                    "a limit of {limit} in a SlidingWindow of {window:?} is too large to count exactly (4 * limit * milliseconds must be below 2^53); lower one of them, or use a FixedWindow"
                );
                return Err(ConfigError::new("window-too-large", message));
            }
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
    /// Returns the end of the window that runs at an instant.
    const fn end_ms(&self, at_ms: u64) -> u64 {
        (at_ms / self.window_ms + 1) * self.window_ms
    }

    /// Returns the part of `count` that came in the last `left_ms` of its window.
    const fn part(&self, count: u64, left_ms: u64) -> u64 {
        count.saturating_mul(left_ms).div_ceil(self.window_ms)
    }

    /// Returns the units of the present window.
    fn current(&self, standing: &BucketState, now_us: u64) -> u64 {
        let left_ms = standing.mark.saturating_sub(now_us / 1_000);
        standing
            .level
            .saturating_sub(self.part(standing.more, left_ms))
    }

    /// Returns how much of the present window may be left if `count` of the last window must
    /// weigh no more than `most`.
    fn fits_left_ms(&self, count: u64, most: u64) -> u64 {
        if count <= most {
            self.window_ms
        } else {
            most.saturating_mul(self.window_ms) / count
        }
    }
}

/// Splits stored words: the end of the newer window, its units, and those of the one before. What takes
/// nothing may have added when a version with shorter windows read it.
const fn split(words: &[u64]) -> (StoredEnd, u64, u64) {
    let (ends_ms, current, previous, read_ms) = match *words {
        [ends_ms, current, previous] => (ends_ms, current, previous, 0),
        [ends_ms, current, previous, read_ms] => (ends_ms, current, previous, read_ms),
        _ => (0, 0, 0, 0),
    };
    let end = StoredEnd { ends_ms, read_ms };
    (end, current, previous)
}

/// `mark` is the end of the present window, `more` the number of units of the previous one.
impl Arithmetic for SlidingWindowParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    /// The sum of two such counts, times the window, is exact.
    fn highest(&self) -> u64 {
        (EXACT - 1) / (2 * self.window_ms)
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let window_ms = self.window_ms;
        let ends_ms = self.end_ms(at.now_ms());
        let (end, current, previous) = split(stored.unwrap_or_default());
        let (stored_ends_ms, is_news) = end.within(at.now_ms(), |at_ms| self.end_ms(at_ms));
        let (current, previous) = if stored_ends_ms.saturating_add(window_ms) > ends_ms {
            (current, previous)
        } else if stored_ends_ms.saturating_add(2 * window_ms) > ends_ms {
            (0, current)
        } else {
            (0, 0)
        };
        // The limit may have been higher when these were stored.
        let (current, previous) = (current.min(self.highest()), previous.min(self.highest()));
        BucketState {
            level: current + self.part(previous, ends_ms - at.now_ms()),
            mark: ends_ms,
            more: previous,
            unsaved: is_news,
        }
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        if change == Change::Take(0) {
            let stored = stored().unwrap_or_default();
            let (end, current, previous) = split(&stored);
            if end.within(at.now_ms(), |at_ms| self.end_ms(at_ms)).1 {
                return State::from_slice(&[end.ends_ms, current, previous, at.now_ms()]);
            }
        }
        let current = change.applied_to(self.current(standing, at.now_us));
        State::from_buf([standing.mark, current, standing.more])
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let (end, current, _) = split(state);
        let ends_ms = end.ends_ms;
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

    /// Returns the time to the next unit or, if that is longer, the time in which the remaining
    /// units come at the sustained rate.
    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let left = self.limit.saturating_sub(standing.level);
        let at_rate_us = at_rate(left, self.limit, self.window_ms * 1_000);
        let less = standing.level.checked_sub(1);
        let next_us = less.and_then(|less| self.retry_us(standing, less, now_us));
        at_rate_us.max(next_us.unwrap_or(0))
    }

    /// Compares the units of the present window only, because each window counts on its own.
    fn missing(&self, standing: &BucketState, least: &BucketState, now_us: u64) -> u64 {
        let present = self.current(standing, now_us);
        self.current(least, now_us).saturating_sub(present)
    }

    /// Only units of the present window can be refunded.
    fn returnable(
        &self,
        _: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        at: &ReadContext<'_>,
    ) -> u64 {
        at.refundable(standing.mark, cost.min(self.current(standing, at.now_us)))
    }
}
