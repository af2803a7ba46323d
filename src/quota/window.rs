//! The arithmetic of windows: a count that restarts when its window ends.
//!
//! It serves fixed windows, and token buckets that are refilled at once. The refill of
//! such a bucket may be less than its capacity, so that a part of the count stays.

use std::time::Duration;

use super::{
    EXACT,
    arithmetic::{
        Arithmetic, BucketState, Change, LEAST_REMEMBERED_NS, ReadContext, State, until_ms,
    },
    calendar::month_end_ms,
};
use crate::ConfigError;

/// When windows start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// With the first request.
    FirstUse,
    /// At multiples of the window, plus `offset_ms`, since the epoch.
    Aligned {
        offset_ms: u64,
    },
    Month,
}

/// The year 2286: ends of windows have 13 digits.
pub(super) const LAST_END_MS: u64 = 9_999_999_999_999;

/// 100 years.
pub(super) const LONGEST_WINDOW_MS: u64 = 100 * 365 * 86_400_000;

/// Whole milliseconds, at least one, at most 100 years.
pub(super) fn checked_window_ms(window: Duration) -> Result<u64, ConfigError> {
    if window.is_zero() {
        return Err(zero_period());
    }
    if window.as_nanos() % 1_000_000 != 0 {
        let message = format!(
            "a window of {window:?} has a fraction of a millisecond; use whole milliseconds"
        );
        return Err(ConfigError::new("window-not-whole-milliseconds", message));
    }
    match u64::try_from(window.as_millis()) {
        Ok(window_ms) if window_ms <= LONGEST_WINDOW_MS => Ok(window_ms),
        _ => Err(ConfigError::new(
            "window-too-long",
            format!(
                "a window of {window:?} exceeds the maximum of 100 years; use a shorter window"
            ),
        )),
    }
}

pub(super) fn zero_period() -> ConfigError {
    ConfigError::new("zero-period", "a period of zero; use a longer one")
}

pub(super) fn limit_too_large(limit: u64) -> ConfigError {
    ConfigError::new(
        "limit-too-large",
        format!("a limit of {limit} is too large to count exactly; use one below 2^53"),
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WindowParams {
    /// The most that can be used.
    pub(crate) limit: u64,
    pub(crate) window_ms: u64,
    pub(crate) start: Start,
    pub(crate) spread: bool,
    /// How much is refilled when a window ends; `None`: everything. The rest stays used.
    pub(crate) refill: Option<u64>,
    /// The units that count as used by an unknown caller.
    pub(crate) initial_used: u64,
}

impl WindowParams {
    /// Returns how much later this caller's windows start, if they are spread.
    pub(super) fn spread_ms(&self, key: &[u8]) -> u64 {
        // The same in every process, and whatever the store.
        let [a, b, c, d, e, f, g, h, ..] =
            blake3::derive_key("tower-throttle v1 spread of windows", key);
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) % self.window_ms
    }

    pub(super) fn new(limit: u64, window: Duration) -> Result<Self, ConfigError> {
        let window_ms = checked_window_ms(window)?;
        if limit >= EXACT {
            return Err(limit_too_large(limit));
        }
        Ok(Self {
            limit,
            window_ms,
            start: Start::FirstUse,
            spread: false,
            refill: None,
            initial_used: 0,
        })
    }

    /// Returns how many stored units were taken and how many are owed. Debts are paid in full. Taken
    /// units count up to twice the limit, so that changed numbers lock out no caller for long.
    fn taken_and_owed(&self, stored: Option<&[u64]>) -> (u64, u64) {
        let (taken, owed) = match stored {
            Some(&[used, _]) => (used, 0),
            Some(&[used, _, taken]) => (taken.min(used), used.saturating_sub(taken)),
            _ => (0, 0),
        };
        (taken.min(2 * self.limit), owed)
    }

    /// Returns for how long a full bucket is remembered, as in a token bucket.
    pub(crate) fn remembered_ms(&self) -> u64 {
        if self.initial_used == 0 {
            return 0;
        }
        let to_fill_ms = self.windows(self.limit).saturating_mul(self.window_ms);
        to_fill_ms.clamp(LEAST_REMEMBERED_NS / 1_000_000, LONGEST_WINDOW_MS)
    }

    /// Returns how many windows must end until `units` are refilled: one, if each refills
    /// everything.
    fn windows(&self, units: u64) -> u64 {
        match self.refill {
            Some(refill @ 1..) => units.div_ceil(refill),
            _ => 1,
        }
    }

    /// Returns the end of the last of `windows` windows. The first ends at `ends_ms`.
    fn last_end_ms(&self, ends_ms: u64, windows: u64) -> u64 {
        let later_ms = windows.saturating_sub(1).saturating_mul(self.window_ms);
        ends_ms.saturating_add(later_ms)
    }

    /// Returns the end of the window that starts now, or that runs now by the clock.
    fn end_ms(&self, at: &ReadContext<'_>) -> u64 {
        let window_ms = self.window_ms;
        match self.start {
            Start::FirstUse => (at.now_ms() + window_ms).min(LAST_END_MS),
            Start::Aligned { offset_ms } => {
                // One window more, so that nothing is below zero.
                let offset_ms = (offset_ms + at.offset_ms) % window_ms;
                let since_ms = at.now_ms() + window_ms - offset_ms;
                (since_ms / window_ms) * window_ms + offset_ms
            }
            Start::Month => month_end_ms(at.now_ms().saturating_sub(at.offset_ms)) + at.offset_ms,
        }
    }
}

impl Arithmetic for WindowParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    /// What is refilled comes back within as many milliseconds as are exact.
    fn highest(&self) -> u64 {
        let most = match self.refill {
            Some(refill @ 1..) => refill.saturating_mul(EXACT / self.window_ms),
            _ => EXACT,
        };
        most.min(EXACT - 1_000)
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let (now_ms, latest_ms) = (at.now_ms(), self.end_ms(at));
        let anew = |level: u64, unsaved: bool| BucketState {
            level,
            mark: latest_ms,
            more: 0,
            unsaved,
        };
        let Some(&[used, ends_ms, ..]) = stored else {
            return anew(self.initial_used, self.initial_used > 0);
        };
        let used = match self.refill {
            Some(_) => {
                let (taken, owed) = self.taken_and_owed(stored);
                let most = self.highest().max(2 * self.limit);
                taken.saturating_add(owed).min(most)
            }
            None => used,
        };
        if ends_ms > now_ms {
            // The next period of a full bucket starts with the next token taken.
            let is_full = used == 0 && self.refill.is_some();
            return BucketState {
                level: used,
                mark: if is_full {
                    latest_ms
                } else {
                    ends_ms.min(latest_ms)
                },
                more: 0,
                unsaved: ends_ms > latest_ms,
            };
        }
        let ended = (now_ms - ends_ms) / self.window_ms + 1;
        if ended < self.windows(used) {
            return BucketState {
                level: used - ended * self.refill.unwrap_or(0),
                mark: ends_ms + ended * self.window_ms,
                ..BucketState::default()
            };
        }
        let full_at_ms = self.last_end_ms(ends_ms, self.windows(used));
        if now_ms >= full_at_ms.saturating_add(self.remembered_ms()) {
            return anew(self.initial_used, self.initial_used > 0);
        }
        anew(0, false)
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        _: &ReadContext<'_>,
    ) -> State {
        let used = change.applied_to(standing.level);
        if self.refill.is_none() || used <= self.limit {
            return State::from_buf_and_len([used, standing.mark, 0], 2);
        }
        // What was taken under a larger burst does not become a debt. A refill pays debts first.
        let (taken, _) = self.taken_and_owed(stored().as_deref());
        let taken = taken.min(standing.level).max(self.limit).min(used);
        State::from_buf([used, standing.mark, taken])
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let &[used, ends_ms, ..] = state else {
            return 0;
        };
        self.last_end_ms(ends_ms, self.windows(used))
            .saturating_add(self.remembered_ms())
            .saturating_mul(1_000)
    }

    fn retry_us(&self, standing: &BucketState, most: u64, now_us: u64) -> Option<u64> {
        if self.refill == Some(0) {
            return None;
        }
        let over = standing.level.saturating_sub(most);
        let fits_at_ms = self.last_end_ms(standing.mark, self.windows(over));
        Some(until_ms(fits_at_ms, now_us))
    }

    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        let full_at_ms = self.last_end_ms(standing.mark, self.windows(standing.level));
        until_ms(full_at_ms, now_us)
    }

    fn returnable(
        &self,
        _: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        at: &ReadContext<'_>,
    ) -> u64 {
        at.refundable(standing.mark, cost.min(standing.level))
    }

    fn outlast(&self, state: &mut State, at: &ReadContext<'_>) {
        if let [_, ends_ms] = &mut state[..] {
            *ends_ms = self.end_ms(at).max(*ends_ms);
        }
    }
}
