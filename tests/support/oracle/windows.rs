//! Fixed windows, and buckets that are refilled at once.

use std::sync::LazyLock;

use super::spec::{DAY_MS, Spec, Start, up};

/// When a window ends, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub ends_ms: i128,
    /// When a version whose windows could not end as late read it.
    pub read_ms: Option<i128>,
}

impl End {
    /// Returns the end for windows that end at `latest_ms` at the latest if they start at an instant,
    /// and what to note of it.
    pub fn within(self, now_ms: i128, latest_ms: impl Fn(i128) -> i128) -> (i128, Option<Self>) {
        let read_ms = self.read_ms.filter(|read_ms| *read_ms <= now_ms);
        let latest_ms = latest_ms(read_ms.unwrap_or(now_ms));
        if self.ends_ms <= latest_ms {
            return (self.ends_ms, None);
        }
        let noted = Self {
            read_ms: Some(now_ms),
            ..self
        };
        (latest_ms, read_ms.is_none().then_some(noted))
    }

    pub fn at(ends_ms: i128) -> Self {
        Self {
            ends_ms,
            read_ms: None,
        }
    }
}

/// The uses of one window.
#[derive(Clone, Debug)]
pub struct Window {
    ends_ms: i128,
    used: i128,
    /// As it is stored.
    end: End,
}

impl Window {
    pub fn open(spec: &Spec, phase_ms: i128, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let latest_ms = end_ms(spec, phase_ms, now_us / 1_000);
        let anew = Self {
            ends_ms: latest_ms,
            used: 0,
            end: End::at(latest_ms),
        };
        let Some(stored) = stored else {
            return (anew, false);
        };
        let latest = |at_ms| end_ms(spec, phase_ms, at_ms);
        let (ends_ms, noted) = stored.end.within(now_us / 1_000, latest);
        if ends_ms * 1_000 <= now_us {
            return (anew, false);
        }
        let known = Self {
            ends_ms,
            used: stored.used,
            end: noted.unwrap_or(stored.end),
        };
        (known, noted.is_some())
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
        self.end = End::at(self.ends_ms);
    }

    pub fn give(&mut self, level: i128) -> i128 {
        let given = level.min(self.used);
        if given > 0 {
            self.used -= given;
            self.end = End::at(self.ends_ms);
        }
        given
    }

    pub fn forgotten_at_us(&self) -> i128 {
        self.end.ends_ms * 1_000
    }
}

/// Returns the end of the window that starts now, or that runs now by the clock.
fn end_ms(spec: &Spec, phase_ms: i128, now_ms: i128) -> i128 {
    let Spec::Window {
        window_ms,
        start,
        utc_offset_minutes,
        ..
    } = *spec
    else {
        panic!("not a window");
    };
    let phase_ms = phase_ms - i128::from(utc_offset_minutes) * 60_000;
    let window_ms = i128::from(window_ms);
    match start {
        Start::FirstUse => now_ms + window_ms,
        Start::Month => month_end_ms(now_ms - phase_ms) + phase_ms,
        Start::Aligned | Start::Day | Start::Week => {
            now_ms + window_ms - (now_ms - phase_ms).rem_euclid(window_ms)
        }
    }
}

/// Returns where windows start after the epoch, if they are not spread, by the clock of their place.
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
    /// Used units that do not count by these numbers.
    uncounted: i128,
    /// How many of the counted units were no debt when it was read.
    no_debt: i128,
    refill: i128,
    period_ms: i128,
    capacity: i128,
    stored: StoredInterval,
}

#[derive(Clone, Copy, Debug)]
struct StoredInterval {
    used: i128,
    end: End,
    /// How many used units are no debt, if not all are.
    counted: Option<i128>,
}

/// The longest time for which a bucket is kept.
const CENTURY_MS: i128 = 100 * 365 * DAY_MS as i128;

impl Interval {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let now_ms = now_us / 1_000;
        let (refill, period_ms) = numbers(spec);
        let capacity = i128::from(spec.capacity());
        let latest_ms = now_ms + period_ms;
        let with = |used: i128, next_ms: i128, uncounted: i128, no_debt: i128| {
            let mut known = Self {
                next_ms,
                used,
                uncounted,
                no_debt: no_debt.min(used),
                refill,
                period_ms,
                capacity,
                stored: StoredInterval {
                    used,
                    end: End::at(next_ms),
                    counted: None,
                },
            };
            known.store();
            known
        };
        let missing = i128::from(spec.missing_at_first());
        let Some(stored) = stored.map(|interval| interval.stored) else {
            return (with(missing, latest_ms, 0, 0), missing > 0);
        };
        let (ends_ms, noted) = stored.end.within(now_ms, |at_ms| at_ms + period_ms);
        // A debt stays in full. Of the rest, other numbers count up to twice their capacity.
        let no_debt = stored.counted.unwrap_or(stored.used);
        let uncounted = (no_debt - 2 * capacity).max(0);
        let used = (stored.used - uncounted).max(0);
        let used = used.min(spec.highest().max(2 * capacity));
        if ends_ms > now_ms {
            let next_ms = if used == 0 { latest_ms } else { ends_ms };
            let mut known = with(used, next_ms, uncounted, no_debt);
            if let Some(end) = noted {
                known.stored = StoredInterval {
                    end,
                    counted: match uncounted {
                        0 => stored.counted,
                        _ => Some(no_debt),
                    },
                    ..stored
                };
            }
            return (known, noted.is_some());
        }
        let ended = (now_ms - ends_ms) / period_ms + 1;
        let periods = up(used, refill).max(1);
        if ended < periods {
            let used = used - ended * refill;
            let next_ms = ends_ms + ended * period_ms;
            return (with(used, next_ms, uncounted, no_debt), false);
        }
        // All that counts is back, and of what counts for others as much as is refilled.
        let refilled = match spec {
            Spec::Interval { limit: 0, .. } => used,
            _ => ended * refill,
        };
        let all = match spec {
            Spec::Interval { limit: 0, .. } if ended > 1 => 0,
            _ => (uncounted - (refilled - used)).max(0),
        };
        let full_at_ms = ends_ms + (periods - 1) * period_ms;
        if full_at_ms + remembered_ms(spec) <= now_ms {
            let uncounted = (all - missing).max(0);
            return (with(missing, latest_ms, uncounted, no_debt), missing > 0);
        }
        (with(0, latest_ms, all, no_debt), false)
    }

    /// Returns whether more is used than counts.
    pub fn is_used_by_others(&self) -> bool {
        self.uncounted > 0
    }

    /// Returns how many periods must end until all units are back.
    fn periods(&self) -> i128 {
        up(self.used, self.refill).max(1)
    }

    pub fn level(&self, at_us: i128) -> i128 {
        let at_ms = at_us / 1_000;
        if self.next_ms > at_ms {
            return self.used;
        }
        let ended = (at_ms - self.next_ms) / self.period_ms + 1;
        match ended >= self.periods() {
            true => 0,
            false => self.used - ended * self.refill,
        }
    }

    pub fn take(&mut self, level: i128) {
        self.used += level;
        self.store();
    }

    /// Sets what is stored if this is what counts. Debts are paid first.
    fn store(&mut self) {
        let counted = match (self.uncounted, self.used > self.capacity) {
            (1.., _) => Some(2 * self.capacity + self.uncounted),
            (_, true) => Some(self.no_debt.max(self.capacity).min(self.used)),
            _ => None,
        };
        self.stored = StoredInterval {
            used: self.used + self.uncounted,
            end: End::at(self.next_ms),
            counted,
        };
    }

    pub fn give(&mut self, level: i128) -> i128 {
        let given = level.min(self.used);
        if given > 0 {
            self.used -= given;
            self.store();
        }
        given
    }

    pub fn forgotten_at_us(&self, spec: &Spec) -> i128 {
        let periods = match spec {
            // What does not count here comes back a period later.
            Spec::Interval { limit: 0, .. } => {
                let no_debt = self.stored.counted.unwrap_or(self.stored.used);
                1 + i128::from(no_debt > 2 * self.capacity)
            }
            _ => up(self.stored.used, self.refill).max(1),
        };
        let full_at_ms = self.stored.end.ends_ms + (periods - 1) * self.period_ms;
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
