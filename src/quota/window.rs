//! The arithmetic of windows: a count that restarts when its window ends.
//!
//! It serves fixed windows, and token buckets that are refilled at once. The refill of
//! such a bucket may be less than its capacity, so that a part of the count stays.
//!
//! Two words are stored: the used units, and the end of the window. Two more words follow if a version
//! with shorter windows has read it, or if a bucket has more used units than its capacity.
//!
//! - The first of them is one more than the number of used units that are no debt, or 0 if no unit is
//!   owed and no version with a smaller capacity has taken.
//! - The second is the instant at which the version with shorter windows read it, or 0. For windows
//!   that cannot end as late, it ends as one that started then.
//!
//! A check that takes nothing writes only these two words, so it changes nothing for other numbers.

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
pub(crate) const LAST_END_MS: u64 = 9_999_999_999_999;

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
    /// How far the clock that starts the windows is ahead of UTC.
    pub(crate) utc_offset_ms: i64,
    pub(crate) spread: bool,
    /// How much is refilled when a window ends; `None`: everything. The rest stays used.
    pub(crate) refill: Option<u64>,
    /// The units that count as used by an unknown caller.
    pub(crate) initial_used: u64,
}

impl WindowParams {
    /// Returns how much later this caller's windows start than by UTC.
    pub(super) fn later_ms(&self, key: &[u8]) -> i64 {
        let spread_ms = if self.spread { self.spread_ms(key) } else { 0 };
        spread_ms as i64 - self.utc_offset_ms
    }

    fn spread_ms(&self, key: &[u8]) -> u64 {
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
            utc_offset_ms: 0,
            spread: false,
            refill: None,
            initial_used: 0,
        })
    }

    /// Returns how many used units do not count by these numbers: those beyond twice the limit, if they
    /// are no debt. So changed numbers lock out no caller for long, and debts are paid in full.
    fn uncounted(&self, stored: &Stored) -> u64 {
        match self.refill {
            Some(_) => stored.no_debt().saturating_sub(2 * self.limit),
            None => 0,
        }
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
    fn end_ms(&self, now_ms: u64, later_ms: i64) -> u64 {
        let window_ms = self.window_ms;
        match self.start {
            Start::FirstUse => now_ms.saturating_add(window_ms).min(LAST_END_MS),
            Start::Aligned {
                offset_ms: start_ms,
            } => {
                let offset_ms = phase_ms(start_ms, later_ms, window_ms);
                // One window more, so that nothing is below zero.
                let since_ms = now_ms + window_ms - offset_ms;
                (since_ms / window_ms) * window_ms + offset_ms
            }
            Start::Month => {
                let local_ms = now_ms.saturating_add_signed(-later_ms);
                month_end_ms(local_ms).saturating_add_signed(later_ms)
            }
        }
    }

    /// Returns the end that counts for these windows.
    fn end(&self, stored: &StoredEnd, now_ms: u64, later_ms: i64) -> (u64, bool) {
        stored.within(now_ms, |at_ms| self.end_ms(at_ms, later_ms))
    }

    /// Returns whether two words say all: these numbers count all that is used, and nothing is owed.
    fn is_plain(&self, used: u64, all: u64) -> bool {
        all == used && (self.refill.is_none() || used <= self.limit)
    }

    /// Writes what numbers of other versions count in another way, or a debt.
    #[cold]
    fn write_beside_others(
        &self,
        stored: Option<&[u64]>,
        standing: &BucketState,
        change: Change,
        (used, all): (u64, u64),
        (now_ms, later_ms): (u64, i64),
    ) -> State {
        let stored = stored.and_then(Stored::new);
        match stored {
            Some(stored)
                if change == Change::Take(0) && self.end(&stored.end, now_ms, later_ms).1 =>
            {
                let counted = match all > used {
                    true => Some(stored.no_debt()),
                    false => stored.counted,
                };
                let counted = counted.map_or(0, |units| units.saturating_add(1));
                State::from_slice(&[stored.used, stored.end.ends_ms, counted, now_ms])
            }
            _ if self.is_plain(used, all) => State::from_buf_and_len([used, standing.mark, 0], 2),
            _ => {
                // A refill pays debts first.
                let no_debt = stored.map_or(0, |stored| stored.no_debt());
                let counted = match all > used {
                    true => (2 * self.limit).saturating_add(all - used),
                    false => no_debt.min(standing.level).max(self.limit).min(used),
                };
                State::from_slice(&[all, standing.mark, counted.saturating_add(1), 0])
            }
        }
    }
}

/// Returns how long after a multiple of their length windows start that `later_ms` shifts.
pub(crate) const fn phase_ms(start_ms: u64, later_ms: i64, window_ms: u64) -> u64 {
    let window_ms = window_ms as i64;
    ((start_ms as i64 % window_ms) + later_ms).rem_euclid(window_ms) as u64
}

/// The end of a window as it is stored.
#[derive(Clone, Copy)]
pub(super) struct StoredEnd {
    pub(super) ends_ms: u64,
    /// When a version whose windows could not end as late read it; 0 for never.
    pub(super) read_ms: u64,
}

impl StoredEnd {
    /// Returns the end for windows that end at `latest_ms` at the latest if they start at an instant,
    /// and whether this instant must be noted.
    pub(super) fn within(&self, now_ms: u64, latest_ms: impl Fn(u64) -> u64) -> (u64, bool) {
        let is_known = (1..=now_ms).contains(&self.read_ms);
        let latest_ms = latest_ms(if is_known { self.read_ms } else { now_ms });
        let is_too_late = self.ends_ms > latest_ms;
        (self.ends_ms.min(latest_ms), is_too_late && !is_known)
    }
}

/// The stored words.
#[derive(Clone, Copy)]
struct Stored {
    used: u64,
    end: StoredEnd,
    /// How many used units are no debt, if not all are. Its word is one more, or 0.
    counted: Option<u64>,
}

impl Stored {
    fn new(words: &[u64]) -> Option<Self> {
        let (used, ends_ms, counted, read_ms) = match *words {
            [used, ends_ms] => (used, ends_ms, 0, 0),
            [used, ends_ms, counted, read_ms] => (used, ends_ms, counted, read_ms),
            _ => return None,
        };
        let end = StoredEnd { ends_ms, read_ms };
        let counted = counted.checked_sub(1);
        Some(Self { used, end, counted })
    }

    fn no_debt(&self) -> u64 {
        self.counted.unwrap_or(self.used)
    }
}

/// `more` is what is used by any numbers.
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
        let now_ms = at.now_ms();
        let latest_ms = self.end_ms(now_ms, at.later_ms);
        let anew = |level: u64, more: u64, unsaved: bool| BucketState {
            level,
            mark: latest_ms,
            more,
            unsaved,
        };
        let Some(stored) = stored.and_then(Stored::new) else {
            return anew(self.initial_used, 0, self.initial_used > 0);
        };
        let (ends_ms, is_news) = self.end(&stored.end, now_ms, at.later_ms);
        let uncounted = self.uncounted(&stored);
        let mut level = stored.used.saturating_sub(uncounted);
        if self.refill.is_some() {
            level = level.min(self.highest().max(2 * self.limit));
        }
        if ends_ms > now_ms {
            // The next period of a full bucket starts with the next token taken.
            let is_full = level == 0 && self.refill.is_some();
            return BucketState {
                level,
                mark: if is_full { latest_ms } else { ends_ms },
                more: level.saturating_add(uncounted),
                unsaved: is_news,
            };
        }
        let ended = (now_ms - ends_ms) / self.window_ms + 1;
        let refilled = self.refill.unwrap_or(0).saturating_mul(ended);
        let all = level.saturating_add(uncounted);
        if ended < self.windows(level) {
            return BucketState {
                level: level - refilled,
                mark: ends_ms + ended * self.window_ms,
                more: all - refilled,
                ..BucketState::default()
            };
        }
        // What does not count here may count by the numbers of others. Without refill, it comes back a
        // window later.
        let more = match self.refill {
            Some(0) if ended > 1 => 0,
            _ => all.saturating_sub(refilled.max(level)),
        };
        let full_at_ms = self.last_end_ms(ends_ms, self.windows(level));
        if now_ms >= full_at_ms.saturating_add(self.remembered_ms()) {
            return anew(self.initial_used, more, self.initial_used > 0);
        }
        anew(0, more, false)
    }

    #[inline]
    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let used = change.applied_to(standing.level);
        // Under other numbers more may be used: that stays used.
        let all = change.applied_to(standing.more).max(used);
        if self.is_plain(used, all) && change != Change::Take(0) {
            return State::from_buf_and_len([used, standing.mark, 0], 2);
        }
        self.write_beside_others(
            stored().as_deref(),
            standing,
            change,
            (used, all),
            (at.now_ms(), at.later_ms),
        )
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let Some(stored) = Stored::new(state) else {
            return 0;
        };
        let windows = match self.refill {
            Some(0) if self.uncounted(&stored) > 0 => 2,
            _ => self.windows(stored.used),
        };
        self.last_end_ms(stored.end.ends_ms, windows)
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
        if let [_, ends_ms, ..] = &mut state[..] {
            *ends_ms = self.end_ms(at.now_ms(), at.later_ms).max(*ends_ms);
        }
    }
}
