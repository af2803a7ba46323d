//! The arithmetic of the token bucket, stored as one instant.
//!
//! A bucket that lacks some tokens is full again at a known instant, its "theoretical arrival
//! time" in the words of GCRA (ITU-T I.371). Only that instant is stored, in nanoseconds, so the
//! state is one word and the arithmetic uses integers. Taking n tokens moves the instant n
//! intervals on. They fit if the instant is then no further ahead than the bucket's depth.
//!
//! A bucket may be further from full than its depth: because of a debt (tokens that were
//! reserved or debited), a version with other numbers that runs at the same time, or a clock that
//! stepped back. Then two more words are stored: the instant at which the bucket counts as just
//! empty and starts to fill, and the instant of the write. So a debt is paid in full, a clock
//! locks out no caller for longer than a refill, and tokens that the other version counts as
//! taken stay taken for it.

use std::time::Duration;

use crate::{
    ConfigError,
    quota::{
        EXACT,
        arithmetic::{
            Arithmetic, BucketState, Change, LEAST_REMEMBERED_NS, ReadContext, State, at_rate,
        },
        window::zero_period,
    },
};

/// Clocks tick in microseconds. A bucket that is full before the next tick is
/// full: otherwise one that holds a single token would wait for the tick after
/// each refill, and fall behind its rate.
pub(in crate::quota) const SLACK_NS: u64 = 999;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenBucketParams {
    pub(crate) limit: u64,
    pub(crate) period_ns: u64,
    pub(crate) burst: u64,
    /// The time in which one token flows in. It is rounded up, so that the rate is never exceeded.
    pub(crate) interval_ns: u64,
    /// The time from empty to full: `burst` intervals.
    pub(crate) capacity_ns: u64,
    /// The level at which an unknown caller starts.
    pub(crate) initial_ns: u64,
}

impl TokenBucketParams {
    /// `initial`: how many tokens an unknown caller has, of the `burst` at most.
    pub(in crate::quota) fn new(
        limit: u64,
        period: Duration,
        burst: u64,
        initial: u64,
    ) -> Result<Self, ConfigError> {
        let too_deep = || {
            let message = format!(
                "at {limit} per {period:?} this bucket takes 104 days or more to fill; lower the burst, or use a FixedWindow"
            );
            ConfigError::new("bucket-too-deep", message)
        };
        let period_ns = match u64::try_from(period.as_nanos()) {
            Ok(0) => return Err(zero_period()),
            Ok(period_ns) => period_ns,
            Err(_) => return Err(too_deep()),
        };
        if u128::from(limit) * 1_000 > u128::from(period_ns) {
            let message = format!(
                "{limit} per {period:?} is more than 1,000,000 a second; lower the limit, or count in larger units"
            );
            return Err(ConfigError::new("rate-too-high", message));
        }
        let interval_ns = period_ns.div_ceil(limit.max(1));
        let capacity_ns = match burst.checked_mul(interval_ns) {
            Some(capacity_ns) if capacity_ns < EXACT - SLACK_NS => capacity_ns,
            _ => return Err(too_deep()),
        };
        Ok(Self {
            limit,
            period_ns,
            burst,
            interval_ns,
            capacity_ns,
            initial_ns: (burst - initial) * interval_ns,
        })
    }

    /// Returns how long a full bucket is remembered: 0 if callers start full.
    pub(crate) fn remembered_ns(&self) -> u64 {
        if self.initial_ns == 0 {
            0
        } else {
            self.capacity_ns.max(LEAST_REMEMBERED_NS)
        }
    }

    const fn unknown(&self) -> BucketState {
        BucketState {
            level: self.initial_ns,
            mark: 0,
            more: 0,
            unsaved: self.initial_ns > 0,
        }
    }
}

/// `mark` is the microsecond at which the bucket is full again. It shows whether a reservation is still
/// the last one. `more` is the time until the stored bucket is full, even beyond the highest level of
/// these numbers.
impl Arithmetic for TokenBucketParams {
    fn capacity(&self) -> u64 {
        self.capacity_ns
    }

    fn unit(&self) -> u64 {
        self.interval_ns
    }

    fn slack(&self) -> u64 {
        SLACK_NS
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let (full_at_ns, empty_at) = match stored {
            Some(&[full_at_ns]) => (full_at_ns, None),
            Some(&[full_at_ns, empty_at_us, written_at_us]) => {
                (full_at_ns, Some((empty_at_us, written_at_us)))
            }
            _ => return self.unknown(),
        };
        // No time passes until the clock is where it was.
        let written_at_us = empty_at.map_or(0, |(_, written_at_us)| written_at_us);
        let at_us = at.now_us.max(written_at_us);
        let at_ns = at_us.saturating_mul(1_000);
        if full_at_ns.saturating_add(self.remembered_ns()) <= at_ns {
            return self.unknown();
        }
        let ahead_ns = full_at_ns.saturating_sub(at_ns).min(EXACT);
        let highest_ns = match empty_at {
            None => self.capacity_ns,
            Some((empty_at_us, _)) => self
                .capacity_ns
                .saturating_add(empty_at_us.saturating_sub(at_us).saturating_mul(1_000))
                .saturating_sub(at_us.saturating_sub(empty_at_us).saturating_mul(1_000)),
        };
        let is_too_far = ahead_ns > highest_ns.saturating_add(SLACK_NS);
        BucketState {
            level: if is_too_far { highest_ns } else { ahead_ns },
            more: ahead_ns,
            unsaved: written_at_us > at.now_us || (is_too_far && empty_at.is_none()),
            ..BucketState::default()
        }
    }

    fn write(
        &self,
        _: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let level = change.applied_to(standing.level);
        // Under other numbers more may be taken: that stays taken.
        let ahead = change.applied_to(standing.more).min(EXACT).max(level);
        let full_at_ns = at.now_us.saturating_mul(1_000).saturating_add(ahead);
        if ahead == level && level <= self.capacity_ns + SLACK_NS {
            return State::from_buf_and_len([full_at_ns, 0, 0], 1);
        }
        let debt_us = level.saturating_sub(self.capacity_ns).div_ceil(1_000);
        let left_us = self.capacity_ns.saturating_sub(level) / 1_000;
        let empty_at_us = (at.now_us + debt_us).saturating_sub(left_us);
        State::from_buf([full_at_ns, empty_at_us, at.now_us])
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let full_at_ns = state.first().copied().unwrap_or(0);
        full_at_ns
            .saturating_add(self.remembered_ns())
            .div_ceil(1_000)
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        let level = change.applied_to(standing.level);
        BucketState {
            level,
            mark: match change {
                Change::Take(1..) => {
                    let ahead = change.applied_to(standing.more).min(EXACT).max(level);
                    at.now_us + ahead / 1_000
                }
                _ => 0,
            },
            ..standing
        }
    }

    /// A reservation in the middle cannot be refunded. The waiters behind it keep their
    /// times, so its units would be granted twice.
    fn returnable(
        &self,
        _: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        at: &ReadContext<'_>,
    ) -> u64 {
        let last_us = at.now_us + standing.more.max(standing.level) / 1_000;
        at.refundable(last_us, cost.min(standing.level))
    }

    fn delay_us(&self, before: &BucketState, cost: u64, paces: bool) -> u64 {
        if cost == 0 || before.level <= SLACK_NS && (paces || cost <= self.capacity_ns) {
            return 0;
        }
        let free = if paces { cost } else { self.capacity_ns };
        let ahead = before.level.saturating_add(cost);
        ahead.saturating_sub(free).div_ceil(1_000)
    }

    fn retry_us(&self, standing: &BucketState, most: u64, _: u64) -> Option<u64> {
        let over_ns = standing.level.saturating_sub(most.max(SLACK_NS));
        Some(over_ns.div_ceil(1_000))
    }

    fn reset_us(&self, standing: &BucketState, _: u64) -> u64 {
        standing.level.div_ceil(1_000)
    }

    /// Returns the time to the next token or, if that is longer, the time in which the remaining
    /// tokens come at the sustained rate.
    fn effective_window_us(&self, standing: &BucketState, _: u64) -> u64 {
        let left = self
            .capacity_ns
            .saturating_sub(self.counted(standing.level));
        let (remaining, part) = (left / self.interval_ns, left % self.interval_ns);
        let next_token_ns = if left == self.capacity_ns {
            0
        } else {
            self.interval_ns - part
        };
        // Where the interval was not rounded up, this needs no division.
        let at_rate_ns = if self.interval_ns.checked_mul(self.limit) == Some(self.period_ns) {
            left - part
        } else {
            at_rate(remaining, self.limit, self.period_ns)
        };
        at_rate_ns.max(next_token_ns).div_ceil(1_000)
    }
}
