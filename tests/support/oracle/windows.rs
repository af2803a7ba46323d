//! Fixed windows, and buckets that are refilled at once.

use std::sync::LazyLock;

use super::spec::{DAY_MS, Spec, Start, up};

/// The uses of one window.
#[derive(Clone, Debug)]
pub struct Window {
    ends_ms: i128,
    used: i128,
}

impl Window {
    pub fn open(spec: &Spec, phase_ms: i128, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let latest_ms = end_ms(spec, phase_ms, now_us / 1_000);
        let running = stored.filter(|window| window.ends_ms * 1_000 > now_us);
        let (ends_ms, used) =
            running.map_or((latest_ms, 0), |window| (window.ends_ms, window.used));
        let known = Self {
            ends_ms: ends_ms.min(latest_ms),
            used,
        };
        (known, ends_ms > latest_ms)
    }

    pub fn level(&self, at_us: i128) -> i128 {
        if at_us < self.ends_ms * 1_000 {
            self.used
        } else {
            0
        }
    }

    pub fn take(&mut self, level: i128) {
        self.used += level;
    }

    pub fn give(&mut self, level: i128) -> i128 {
        let given = level.min(self.used);
        self.used -= given;
        given
    }

    pub fn forgotten_at_us(&self) -> i128 {
        self.ends_ms * 1_000
    }
}

/// Returns the end of the window that starts now, or that runs now by the clock.
fn end_ms(spec: &Spec, phase_ms: i128, now_ms: i128) -> i128 {
    let Spec::Window {
        window_ms, start, ..
    } = *spec
    else {
        panic!("not a window");
    };
    let window_ms = i128::from(window_ms);
    match start {
        Start::FirstUse => now_ms + window_ms,
        Start::Month => month_end_ms(now_ms - phase_ms) + phase_ms,
        Start::Aligned | Start::Day | Start::Week => {
            now_ms + window_ms - (now_ms - phase_ms).rem_euclid(window_ms)
        }
    }
}

/// Returns where windows start after the epoch, if they are not spread.
pub fn phase_ms(spec: &Spec) -> i128 {
    match spec {
        Spec::Window {
            start: Start::Week, ..
        } => 4 * i128::from(DAY_MS),
        _ => 0,
    }
}

/// Counts month by month, by the rule for leap years.
pub fn month_end_ms(at_ms: i128) -> i128 {
    static ENDS: LazyLock<Vec<i128>> = LazyLock::new(|| {
        let (mut ends, mut days) = (Vec::new(), 0);
        for year in 1970..2300 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if is_leap { 29 } else { 28 };
            for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                days += length;
                ends.push(days * i128::from(DAY_MS));
            }
        }
        ends
    });
    let later = ENDS.partition_point(|end| *end <= at_ms);
    *ENDS.get(later).expect("a month of this age")
}

/// A bucket whose tokens come all at once.
#[derive(Clone, Debug)]
pub struct Interval {
    next_ms: i128,
    used: i128,
    refill: i128,
    period_ms: i128,
    capacity: i128,
    /// How many of the used units were taken. The others are owed: they were beyond the capacity.
    taken: i128,
}

/// The longest time for which a bucket is kept.
const CENTURY_MS: i128 = 100 * 365 * DAY_MS as i128;

impl Interval {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let now_ms = now_us / 1_000;
        let (refill, period_ms) = numbers(spec);
        let capacity = i128::from(spec.capacity());
        let with = |used: i128, next_ms: i128, taken: i128| Self {
            next_ms,
            used,
            refill,
            period_ms,
            capacity,
            taken: taken.max(capacity).min(used),
        };
        let anew = |used: i128| with(used, now_ms + period_ms, 0);
        let missing = i128::from(spec.missing_at_first());
        let Some(stored) = stored else {
            return (anew(missing), missing > 0);
        };
        // A debt stays in full. Of the rest, other numbers count up to twice their capacity.
        let (taken, owed) = (stored.taken.min(2 * capacity), stored.used - stored.taken);
        let used = (taken + owed).min(spec.highest().max(2 * capacity));
        let known = with(used, stored.next_ms, taken);
        if known.next_ms > now_ms {
            let latest_ms = now_ms + period_ms;
            let next_ms = match used {
                0 => latest_ms,
                _ => known.next_ms.min(latest_ms),
            };
            return (with(used, next_ms, taken), known.next_ms > latest_ms);
        }
        let (used, next_ms) = known.later(now_ms);
        if used > 0 {
            return (with(used, next_ms, taken), false);
        }
        if next_ms + remembered_ms(spec) <= now_ms {
            return (anew(missing), missing > 0);
        }
        (anew(0), false)
    }

    /// Returns how many periods must end until all units are back.
    fn periods(&self) -> i128 {
        up(self.used, self.refill).max(1)
    }

    /// Returns what is used then, and when the next refill is. If nothing is used, when that
    /// began.
    fn later(&self, at_ms: i128) -> (i128, i128) {
        if self.next_ms > at_ms {
            return (self.used, self.next_ms);
        }
        let ended = (at_ms - self.next_ms) / self.period_ms + 1;
        if ended >= self.periods() {
            return (0, self.next_ms + (self.periods() - 1) * self.period_ms);
        }
        let next_ms = self.next_ms + ended * self.period_ms;
        (self.used - ended * self.refill, next_ms)
    }

    pub fn level(&self, at_us: i128) -> i128 {
        self.later(at_us / 1_000).0
    }

    pub fn take(&mut self, level: i128) {
        self.change(level);
    }

    /// Debts are paid first.
    fn change(&mut self, by: i128) {
        self.used += by;
        self.taken = self.taken.max(self.capacity).min(self.used);
    }

    pub fn give(&mut self, level: i128) -> i128 {
        let given = level.min(self.used);
        self.change(-given);
        given
    }

    pub fn forgotten_at_us(&self, spec: &Spec) -> i128 {
        let full_at_ms = self.next_ms + (self.periods() - 1) * self.period_ms;
        (full_at_ms + remembered_ms(spec)) * 1_000
    }
}

/// Returns the refill and its period. Without a refill, the bucket is forgotten at last.
fn numbers(spec: &Spec) -> (i128, i128) {
    let Spec::Interval {
        limit, period_ms, ..
    } = *spec
    else {
        panic!("not an interval");
    };
    if limit == 0 {
        return (1 << 60, CENTURY_MS);
    }
    (limit.into(), period_ms.into())
}

fn remembered_ms(spec: &Spec) -> i128 {
    if spec.missing_at_first() == 0 {
        return 0;
    }
    let (refill, period_ms) = numbers(spec);
    (up(spec.capacity().into(), refill) * period_ms).clamp(60_000, CENTURY_MS)
}
