//! The questions that every algorithm answers.
//!
//! It sees the state of a bucket as a few `u64`, its words.

mod values;

use smallvec::SmallVec;

pub(crate) use self::values::{BucketState, Change, HoldReading, ReadContext, Reading};
use super::EXACT;

/// The words that a store keeps for one bucket. Only the algorithm knows their meaning.
pub(crate) type State = SmallVec<[u64; 3]>;

/// A client that waits for a `Retry-After` in whole seconds comes back late. A bucket is
/// remembered for longer than that, so that the tokens are still there.
pub(super) const LEAST_REMEMBERED_NS: u64 = 60_000_000_000;

/// The arithmetic of one algorithm: pure, in integers, with `now` as an argument.
///
/// A request fits if its cost and the level together do not exceed the capacity.
/// All levels are below 2^53, so that Lua holds them exactly.
pub(crate) trait Arithmetic {
    /// Returns the level at which nothing more fits.
    fn capacity(&self) -> u64;

    /// Returns whether a denial is a ban.
    fn bans(&self) -> bool {
        false
    }

    /// Returns the level of one unit.
    fn unit(&self) -> u64 {
        1
    }

    /// Returns the highest level that counts as 0.
    fn slack(&self) -> u64 {
        0
    }

    /// Returns the highest level, with debts and reservations. Up to there the arithmetic is
    /// exact, here and in Lua.
    fn highest(&self) -> u64 {
        EXACT - 1_000
    }

    /// Returns whether `cost` fits now, within the capacity and `extra`.
    fn fits(&self, standing: &BucketState, cost: u64, extra: i64) -> bool {
        let room = self.capacity().saturating_add_signed(extra);
        cost <= room
            && (standing.level <= self.slack() || standing.level.saturating_add(cost) <= room)
    }

    /// Returns how many units fit at this level.
    fn units_that_fit(&self, level: u64) -> u64 {
        self.capacity().saturating_sub(self.counted(level)) / self.unit()
    }

    /// Returns whether less than a fifth of the capacity is left at this level. It compares levels:
    /// units would need a division for each request.
    fn is_nearly_used(&self, level: u64) -> bool {
        let left = self.capacity().saturating_sub(self.counted(level));
        left.saturating_mul(5) < self.capacity()
    }

    /// Returns the part of `cost` that a debit charges: as many whole units as fit within
    /// the capacity and `extra`.
    fn chargeable(&self, standing: &BucketState, cost: u64, extra: i64) -> u64 {
        let room = self.capacity().saturating_add_signed(extra);
        let left = room.saturating_sub(self.counted(standing.level));
        cost.min(left - left % self.unit())
    }

    /// Returns the level, or 0 if it is within the slack.
    fn counted(&self, level: u64) -> u64 {
        if level <= self.slack() { 0 } else { level }
    }

    /// Returns the highest level at which a cost fits; `None` if it never does.
    fn max_level_for(&self, cost: u64, extra: i64) -> Option<u64> {
        let room = self.capacity().saturating_add_signed(extra);
        room.checked_sub(cost)
    }

    /// Returns how long to hold an admitted request: until its turn in a queue that
    /// `paces`, or until the units that it reserved are there.
    fn delay_us(&self, _before: &BucketState, _cost: u64, _paces: bool) -> u64 {
        0
    }

    /// Reads the stored words.
    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState;

    /// Returns the words to store after a change. `standing` was read from the words that
    /// `stored` takes out.
    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State;

    /// Returns the instant from which the stored words mean the same as none.
    fn drained_at_us(&self, state: &[u64]) -> u64;

    /// Returns the bucket after a change.
    fn after(&self, standing: BucketState, change: Change, _at: &ReadContext<'_>) -> BucketState {
        BucketState {
            level: change.applied_to(standing.level),
            ..standing
        }
    }

    /// Returns the microseconds until the level, which is higher than `most` now, is no
    /// longer so. `None` if waiting alone does not help.
    fn retry_us(&self, standing: &BucketState, most: u64, now_us: u64) -> Option<u64>;

    /// Returns the microseconds until the level is 0. The level is above 0 now. By default, `mark` is
    /// that instant, in milliseconds.
    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    /// Returns the time within which at most the remaining units may be used, for the
    /// `t` parameter of `RateLimit`. By default, `mark` is its end, in milliseconds.
    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    /// Returns the bucket at another instant, if nothing was taken or refunded meanwhile.
    /// `None` if that does not follow from what was read.
    #[cfg(feature = "redis")]
    fn later(
        &self,
        standing: BucketState,
        from: &ReadContext<'_>,
        at: &ReadContext<'_>,
    ) -> Option<BucketState> {
        if standing.level == 0 {
            // An empty level is as good as unknown, unless unknown callers start with less.
            let unknown = self.read(None, at);
            return (unknown.level == 0).then_some(unknown);
        }
        let stored = self.write(|| None, &standing, Change::Take(0), from);
        Some(self.read(Some(&stored), at))
    }

    /// Keeps what was taken now for as long as a new bucket would. If callers share a bucket, the
    /// window of each may end later.
    fn outlast(&self, _state: &mut State, _at: &ReadContext<'_>) {}

    /// Returns how much to take so that, at every later instant, this bucket's level is at
    /// least that of another.
    fn missing(&self, standing: &BucketState, least: &BucketState, _now_us: u64) -> u64 {
        least.level.saturating_sub(standing.level)
    }

    /// Returns how much of a cost can be refunded.
    fn returnable(
        &self,
        _stored: Option<&[u64]>,
        standing: &BucketState,
        cost: u64,
        _at: &ReadContext<'_>,
    ) -> u64 {
        cost.min(standing.level)
    }
}

/// Returns the time that `left` units take at `limit` per `window`, in the unit of `window`.
pub(crate) fn at_rate(left: u64, limit: u64, window: u64) -> u64 {
    let limit = limit.max(1);
    // The product nearly always fits 64 bits, and that is much faster.
    match left.checked_mul(window) {
        Some(product) => product.div_ceil(limit),
        None => {
            let product = u128::from(left) * u128::from(window);
            u64::try_from(product.div_ceil(limit.into())).unwrap_or(u64::MAX)
        }
    }
}

/// Returns the microseconds from now until an instant in milliseconds.
pub(crate) const fn until_ms(moment_ms: u64, now_us: u64) -> u64 {
    moment_ms.saturating_mul(1_000).saturating_sub(now_us)
}
