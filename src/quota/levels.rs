//! The arithmetic of a quota, whichever algorithm it has: levels, and what follows from them.

use std::time::Duration;

use super::{
    EXACT, Params, Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext},
    each,
};

impl Quota {
    /// Returns a cost as a level. At most [`EXACT`], which no capacity reaches.
    pub(crate) fn level_of(&self, units: u64) -> u64 {
        each!(self, rule => units.saturating_mul(rule.unit())).min(EXACT)
    }

    /// Returns the level at which nothing more fits.
    pub(crate) fn level_of_capacity(&self) -> u64 {
        each!(self, rule => rule.capacity())
    }

    /// Returns the whole units in a level.
    pub(crate) fn units_of(&self, level: u64) -> u64 {
        each!(self, rule => level / rule.unit())
    }

    /// Returns the room beyond the capacity, limited so that all levels stay exact.
    pub(crate) fn extra(&self, level: u64) -> u64 {
        let highest = each!(self, rule => rule.highest());
        level.min(highest.saturating_sub(self.level_of_capacity()))
    }

    /// Returns the most units that may be owed. Permits are held, so it is 0 for those.
    pub(crate) fn most_debt(&self) -> u64 {
        match self.may_owe() {
            true => self.units_of(self.extra(u64::MAX)),
            false => 0,
        }
    }

    /// Returns the room beyond the capacity for a reservation whose time comes within
    /// `wait`. It is negative if the turn in a queue must come by then.
    pub(crate) fn room_for_wait(&self, level: u64, wait: Duration, is_turn_bound: bool) -> i64 {
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let capacity = self.level_of_capacity();
        let signed = |level: u64| i64::try_from(level).unwrap_or(i64::MAX);
        // A cost above the capacity never fits, however long the caller waits.
        if level > capacity {
            return 0;
        }
        if self.paces() {
            let bound = level.saturating_add(wait_ns).min(capacity);
            return match is_turn_bound {
                true => -signed(capacity - bound),
                false => 0,
            };
        }
        match self.reserves() {
            true => signed(self.extra(wait_ns)),
            false => 0,
        }
    }

    pub(crate) fn remaining(&self, level: u64) -> u64 {
        each!(self, rule => rule.units_that_fit(level))
    }

    /// Returns the bucket after this level was taken.
    pub(crate) fn after(&self, standing: BucketState, taken: u64, now_us: u64) -> BucketState {
        let at = ReadContext {
            now_us,
            ..ReadContext::default()
        };
        let change = Change::Take(taken);
        each!(self, rule => rule.after(standing, change, &at))
    }

    /// Returns the microseconds until nothing is taken anymore.
    pub(crate) fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        if standing.level == 0 {
            return 0;
        }
        each!(self, rule => rule.reset_us(standing, now_us))
    }

    pub(crate) fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        each!(self, rule => rule.effective_window_us(standing, now_us))
    }

    /// Returns the milliseconds after which a full bucket is empty, without debts. At most those of
    /// a year, after which the units of a dead process are no longer remembered.
    pub(crate) fn drained_after_ms(&self) -> u64 {
        const YEAR_MS: u64 = 366 * 86_400_000;

        let drained_after_ms = match &self.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => {
                (rule.capacity_ns + rule.remembered_ns()) / 1_000_000 + 1
            }
            Params::FixedWindow(rule) | Params::IntervalBucket(rule) => {
                let drained_after_ms = match rule.refill {
                    None => rule.window_ms,
                    Some(0) => YEAR_MS,
                    Some(refill) => rule.window_ms.saturating_mul(rule.limit.div_ceil(refill)),
                };
                drained_after_ms.saturating_add(rule.remembered_ms())
            }
            Params::SlidingWindow(rule) => 2 * rule.window_ms,
            Params::SlidingLog(rule) => rule.window_us / 1_000 + 1,
            Params::Concurrency(_) | Params::Penalty(_) => 0,
        };
        drained_after_ms.min(YEAR_MS)
    }

    /// Returns how much later this caller's windows start than by UTC.
    pub(crate) fn later_ms(&self, key: &[u8]) -> i64 {
        match &self.0 {
            Params::FixedWindow(rule) => rule.later_ms(key),
            // Nothing else has windows that start by a clock.
            _ => 0,
        }
    }
}

#[cfg(test)]
#[test]
fn less_than_a_fifth_of_the_units_left_is_nearly_used() -> Result<(), crate::ConfigError> {
    let texts = [
        "{} per minute",
        "sliding window of {} per hour",
        "{} per day",
        "{} at once",
    ];
    for (capacity, text) in (1..40).flat_map(|capacity| texts.map(|text| (capacity, text))) {
        let quota: Quota = text.replace("{}", &capacity.to_string()).parse()?;
        for left in 0..=capacity {
            let level = quota.level_of(capacity - left);
            let is_nearly_used = each!(quota, rule => rule.is_nearly_used(level));
            assert_eq!(is_nearly_used, left * 5 < capacity, "{quota}: {left}");
        }
    }
    Ok(())
}
