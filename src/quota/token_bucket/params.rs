//! The arithmetic of the token bucket, stored as one instant and the rate at which it comes nearer.
//!
//! A bucket that lacks some tokens is full again at a known instant, its "theoretical arrival
//! time" in the words of GCRA (ITU-T I.371). It is stored in nanoseconds, so the arithmetic uses
//! integers. Taking n tokens moves the instant n intervals on. They fit if the instant is then no
//! further ahead than the bucket's depth.
//!
//! The second word is the interval of the numbers that took last. Numbers with another interval
//! compute from both words how many tokens are used, rounded up, and refill them at their own rate.
//! So used tokens stay used, whichever version of a policy reads them.
//!
//! Two more words may follow:
//!
//! - The instant of the write, if numbers with another interval have read the bucket. These refill it
//!   from then on.
//! - How much of what is used is no debt, in nanoseconds of the stored interval, if the bucket is further
//!   from full than its depth. That is so because of a debt (tokens that were reserved or debited), a
//!   version with a smaller burst, or a clock that stepped back. A smaller burst does not count the
//!   tokens by which this word exceeds it: it finds the bucket just empty at first. A debt is paid in
//!   full.
//!
//! A check that takes nothing writes only these two words, so it changes nothing for other numbers.

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

    /// Returns when the bucket is full by these numbers. If it was written by others, its units are
    /// refilled at this rate from `written_us` on.
    fn full_at_ns(&self, stored: &Stored, written_us: u64) -> u64 {
        let written_ns = written_us.saturating_mul(1_000);
        if stored.interval_ns == self.interval_ns || stored.full_at_ns <= written_ns {
            return stored.full_at_ns;
        }
        let ahead_ns = (stored.full_at_ns - written_ns).min(EXACT);
        let used = ahead_ns.div_ceil(stored.interval_ns);
        written_ns.saturating_add(used.saturating_mul(self.interval_ns).min(EXACT))
    }

    /// Returns how much of what is used is no debt, of a bucket that is `ahead` of full and counts as
    /// `level`.
    fn paid_ns(&self, level: u64, ahead: u64) -> u64 {
        (self.capacity_ns + (ahead - level)).min(EXACT)
    }

    /// Returns what these numbers do not count of what is used and no debt. They grant a slack themselves.
    const fn uncounted_ns(&self, paid_ns: u64) -> u64 {
        match paid_ns > self.capacity_ns + SLACK_NS {
            true => paid_ns - self.capacity_ns,
            false => 0,
        }
    }

    /// Returns whether more is used than these numbers count, or than they grant.
    const fn is_deep(&self, level: u64, ahead: u64) -> bool {
        ahead > level || level > self.capacity_ns + SLACK_NS
    }

    /// Reads words that other numbers have written or read, or that are deeper than these numbers allow.
    #[cold]
    fn read_beside_others(&self, words: &[u64], now_us: u64) -> BucketState {
        let Some(stored) = Stored::new(words) else {
            return self.unknown();
        };
        let written_us = stored.written_us.unwrap_or(now_us);
        // No time passes until the clock is where it was.
        let at_ns = now_us.max(written_us).saturating_mul(1_000);
        let full_at_ns = self.full_at_ns(&stored, written_us);
        if full_at_ns.saturating_add(self.remembered_ns()) <= at_ns {
            return self.unknown();
        }
        let ahead_ns = full_at_ns.saturating_sub(at_ns).min(EXACT);
        let paid_ns = stored
            .paid_ns
            .map(|paid_ns| Stored::at_interval(paid_ns, stored.interval_ns, self.interval_ns));
        let is_too_far = paid_ns.is_none() && ahead_ns > self.capacity_ns + SLACK_NS;
        let paid_ns = match is_too_far {
            true if stored.interval_ns == self.interval_ns => ahead_ns,
            // In whole tokens, as other numbers read it.
            true => ahead_ns / self.interval_ns * self.interval_ns,
            false => paid_ns.unwrap_or(0),
        };
        let is_other_rate = stored.interval_ns != self.interval_ns && ahead_ns > 0;
        BucketState {
            level: ahead_ns.saturating_sub(self.uncounted_ns(paid_ns)),
            more: ahead_ns,
            unsaved: written_us > now_us
                || is_too_far
                || (is_other_rate && stored.written_us.is_none()),
            ..BucketState::default()
        }
    }

    /// Writes a bucket of which nothing is taken, or that is deeper than these numbers allow.
    #[cold]
    fn write_beside_others(
        &self,
        stored: Option<&[u64]>,
        standing: &BucketState,
        change: Change,
        (level, ahead): (u64, u64),
        now_us: u64,
    ) -> State {
        let is_deep = self.is_deep(level, ahead);
        if change == Change::Take(0) && standing.more > 0 {
            let stored = stored.and_then(Stored::new);
            if let Some(stored) = stored.filter(|stored| {
                stored.interval_ns != self.interval_ns || stored.written_us.is_some() || is_deep
            }) {
                let paid_ns = is_deep.then(|| {
                    let paid_ns = self.paid_ns(level, ahead);
                    Stored::at_interval(paid_ns, self.interval_ns, stored.interval_ns)
                });
                return stored.noted(now_us, paid_ns);
            }
        }
        let full_at_ns = now_us.saturating_mul(1_000).saturating_add(ahead);
        if !is_deep {
            return State::from_buf_and_len([full_at_ns, self.interval_ns, 0], 2);
        }
        let paid_ns = self.paid_ns(level, ahead);
        State::from_slice(&[full_at_ns, self.interval_ns, now_us, paid_ns])
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

/// The stored words.
struct Stored {
    full_at_ns: u64,
    interval_ns: u64,
    written_us: Option<u64>,
    /// How much of what is used is no debt, if not all is.
    paid_ns: Option<u64>,
}

impl Stored {
    fn new(words: &[u64]) -> Option<Self> {
        let [full_at_ns, interval_ns, ref rest @ ..] = *words else {
            return None;
        };
        Some(Self {
            full_at_ns,
            interval_ns: interval_ns.max(1),
            written_us: rest.first().copied(),
            paid_ns: rest.get(1).copied(),
        })
    }

    /// Returns a time of refill at one interval as that of as many whole tokens at another one.
    fn at_interval(time_ns: u64, from_ns: u64, to_ns: u64) -> u64 {
        match from_ns == to_ns {
            true => time_ns,
            false => time_ns.div_ceil(from_ns).saturating_mul(to_ns).min(EXACT),
        }
    }

    /// Returns the words of a bucket of which nothing is taken, as of now if its clock is ahead.
    /// `found_ns`: how much of what is used is no debt, if its reader is the first that asks.
    fn noted(&self, now_us: u64, found_ns: Option<u64>) -> State {
        let written_us = self.written_us.unwrap_or(now_us);
        let ahead_us = written_us.saturating_sub(now_us);
        let full_at_ns = self
            .full_at_ns
            .saturating_sub(ahead_us.saturating_mul(1_000))
            .min(now_us.saturating_mul(1_000).saturating_add(EXACT));
        let written_us = written_us - ahead_us;
        // No more than is used: units are rounded up.
        let used_ns = full_at_ns.saturating_sub(written_us.saturating_mul(1_000));
        let found_ns = found_ns.map(|found_ns| found_ns.min(used_ns));
        match self.paid_ns.or(found_ns) {
            Some(paid_ns) => {
                State::from_slice(&[full_at_ns, self.interval_ns, written_us, paid_ns])
            }
            None => State::from_slice(&[full_at_ns, self.interval_ns, written_us]),
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

    #[inline]
    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let full_at_ns = match stored {
            Some(&[full_at_ns, interval_ns]) if interval_ns == self.interval_ns => full_at_ns,
            Some(words) => return self.read_beside_others(words, at.now_us),
            None => return self.unknown(),
        };
        let at_ns = at.now_us.saturating_mul(1_000);
        if full_at_ns.saturating_add(self.remembered_ns()) <= at_ns {
            return self.unknown();
        }
        let ahead_ns = full_at_ns.saturating_sub(at_ns);
        if ahead_ns > self.capacity_ns + SLACK_NS {
            return self.read_beside_others(&[full_at_ns, self.interval_ns], at.now_us);
        }
        BucketState {
            level: ahead_ns,
            more: ahead_ns,
            ..BucketState::default()
        }
    }

    #[inline]
    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let level = change.applied_to(standing.level);
        // Under other numbers more may be taken: that stays taken.
        let ahead = change.applied_to(standing.more).min(EXACT).max(level);
        if self.is_deep(level, ahead) || change == Change::Take(0) {
            return self.write_beside_others(
                stored().as_deref(),
                standing,
                change,
                (level, ahead),
                at.now_us,
            );
        }
        let full_at_ns = at.now_us.saturating_mul(1_000).saturating_add(ahead);
        State::from_buf_and_len([full_at_ns, self.interval_ns, 0], 2)
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let Some(stored) = Stored::new(state) else {
            return 0;
        };
        // Those who have not read it under these numbers do not know when.
        let written_us = stored.written_us.unwrap_or(u64::MAX / 1_000);
        self.full_at_ns(&stored, written_us)
            .max(stored.full_at_ns)
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
