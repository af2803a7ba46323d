//! Units that are taken before their cost is known, and charged or released later.
//!
//! A bucket of a policy that holds has, behind its own state, the units that requests hold of it. A
//! check fits if the level, the units held and the cost are together no more than the capacity. So
//! charged units are never returned: units are charged when they are settled, and not before. Then
//! no order of settlements grants more than the quota does.
//!
//! Units are counted in two generations, so that the state has the same size whatever is in flight.
//! A generation that started at `s` takes units until `s + lifetime`, and lapses at `s + 2 *
//! lifetime`. The first check after that charges what has lapsed, as of the instant at which it did.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use smallvec::SmallVec;

use super::{
    EXACT,
    arithmetic::{HoldReading, State},
};
use crate::util::random::random;

/// The demand of a check on the units that are held of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldDemand {
    /// How long a unit is held at least.
    pub(crate) lifetime_ms: u64,
    /// How many units of the cost are held and not charged; for a settlement, a refund and an
    /// extension, how many were held.
    pub(crate) units: u64,
    /// The generation in which they were held.
    pub(crate) generation: u64,
    /// How many of the units that a settlement charges were not held.
    pub(crate) beyond: u64,
    /// The number of an extension, of 48 bits: the same number again moves nothing. 0: it is not an
    /// extension.
    pub(crate) extension: u64,
}

impl HoldDemand {
    pub(crate) const fn new(lifetime_ms: u64, units: u64) -> Self {
        Self {
            lifetime_ms,
            units,
            generation: 0,
            beyond: 0,
            extension: 0,
        }
    }
}

/// What is held of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// When the younger generation started. The elder one started a lifetime earlier.
    start_ms: u64,
    /// Until when the bucket must be kept.
    ends_ms: u64,
    younger: Generation,
    elder: Generation,
    /// The number of the last extension into the younger generation, or 0.
    extension: u64,
}

/// Units that lapse together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Generation {
    /// When it started, and a number of the check that started it, so that a reset changes it. 0:
    /// no units are held.
    mark: u64,
    units: u64,
}

/// Set in the last word of what is held, and in no word of a bucket.
const HELD: u64 = 1 << 63;

/// How many generations that start in one millisecond have different marks.
const NUMBERS: u64 = 1 << 10;

/// Returns the next number of a check that may start a generation.
pub(crate) fn next_number() -> u64 {
    static NUMBER: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(random()));

    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Returns the number of a new extension.
pub(crate) fn next_extension() -> u64 {
    next_number() % ((1 << 48) - 1) + 1
}

/// Returns the mark of a generation. Up to the year 2248 all of it is exact in Lua.
const fn mark(start_ms: u64, number: u64) -> u64 {
    start_ms % (EXACT / NUMBERS) * NUMBERS + number % NUMBERS
}

/// Returns when the generation with this mark started, in microseconds.
pub(crate) const fn start_us(mark: u64) -> u64 {
    mark / NUMBERS * 1_000
}

impl Held {
    /// Starts a generation with this mark.
    pub(crate) fn starting(start_ms: u64, mark: u64) -> Self {
        Self {
            start_ms,
            younger: Generation { mark, units: 0 },
            ..Self::default()
        }
    }

    /// Splits words into those of the bucket and what is held of it.
    pub(crate) fn split(words: &[u64]) -> (&[u64], Option<Self>) {
        match *words {
            [
                ref bucket @ ..,
                start_ms,
                young,
                younger,
                old,
                elder,
                extension,
                ends,
            ] if ends & HELD > 0 => {
                let generation = |mark, units| Generation { mark, units };
                let held = Self {
                    start_ms,
                    ends_ms: ends & !HELD,
                    younger: generation(young, younger),
                    elder: generation(old, elder),
                    extension,
                };
                (bucket, Some(held))
            }
            _ => (words, None),
        }
    }

    /// Returns the words of a bucket, and behind them those of what is held.
    pub(crate) fn behind(&self, words: &[u64]) -> State {
        let own = [
            self.start_ms,
            self.younger.mark,
            self.younger.units,
            self.elder.mark,
            self.elder.units,
            self.extension,
            self.ends_ms | HELD,
        ];
        words.iter().copied().chain(own).collect()
    }

    /// Returns until when the bucket must be kept.
    pub(crate) const fn ends_us(&self) -> u64 {
        self.ends_ms.saturating_mul(1_000)
    }

    pub(crate) fn units(&self) -> u64 {
        let units = self.younger.units.saturating_add(self.elder.units);
        units.min(EXACT - 1)
    }

    /// Returns whether this extension ran before. Then its reply was lost.
    pub(crate) const fn is_repeated(&self, hold: &HoldDemand) -> bool {
        hold.extension > 0 && self.extension == hold.extension
    }

    /// Returns what a check finds.
    pub(crate) fn reading(&mut self, hold: &HoldDemand) -> HoldReading {
        let found = match self.is_repeated(hold) {
            true => Some(&mut self.younger.units),
            false => self.generation(hold.generation),
        };
        HoldReading {
            found: found.map_or(0, |units| hold.units.min(*units)),
            held: self.units(),
            generation: self.younger.mark,
        }
    }

    /// Moves on to the present generation. `number`: of this check. Returns how many units have lapsed
    /// and when, in milliseconds, and whether the clock has stepped back so far that units would be held
    /// for longer than new ones.
    pub(crate) fn advance(
        &mut self,
        now_ms: u64,
        lifetime_ms: u64,
        number: u64,
    ) -> (SmallVec<[(u64, u64); 2]>, bool) {
        let mut lapses = SmallVec::new();
        let mut lapse = |units, at_ms| {
            if units > 0 {
                lapses.push((units, at_ms));
            }
        };
        let latest_ms = now_ms.saturating_add(lifetime_ms);
        let is_ahead = self.units() > 0 && self.start_ms > latest_ms;
        self.start_ms = self.start_ms.min(latest_ms);
        let age_ms = now_ms.saturating_sub(self.start_ms);
        let starting = Self {
            ends_ms: self.ends_ms,
            ..Self::starting(now_ms, mark(now_ms, number))
        };
        if self.units() == 0 {
            *self = starting;
        } else if age_ms >= lifetime_ms {
            lapse(self.elder.units, self.start_ms + lifetime_ms);
            if age_ms - lifetime_ms < lifetime_ms {
                self.start_ms += lifetime_ms;
                let younger = Self::starting(self.start_ms, mark(self.start_ms, number));
                (self.younger, self.elder) = (younger.younger, self.younger);
                self.extension = 0;
            } else {
                lapse(self.younger.units, self.start_ms + 2 * lifetime_ms);
                *self = starting;
            }
        }
        (lapses, is_ahead)
    }

    fn generation(&mut self, mark: u64) -> Option<&mut u64> {
        let generations = [&mut self.younger, &mut self.elder].into_iter();
        let mut generations = generations.filter(|generation| generation.mark == mark);
        generations.next().map(|generation| &mut generation.units)
    }

    /// Holds `taken` more units, and no longer `given` units of the demand's generation.
    pub(crate) fn change(&mut self, taken: u64, given: u64, hold: &HoldDemand) {
        if let Some(units) = self.generation(hold.generation) {
            *units = units.saturating_sub(given);
        }
        self.younger.units = self.younger.units.saturating_add(taken);
        if hold.extension > 0 && taken > 0 {
            self.extension = hold.extension;
        }
    }

    /// Keeps the bucket until its words have drained, and until what is held now has lapsed and
    /// that has drained.
    pub(crate) fn keep(&mut self, drained_at_us: u64, lifetime_ms: u64, drained_after_ms: u64) {
        let lapses_ms = self.start_ms.saturating_add(lifetime_ms.saturating_mul(2));
        self.outlast(drained_at_us);
        let ends_ms = lapses_ms.saturating_add(drained_after_ms).min(EXACT);
        self.ends_ms = self.ends_ms.max(ends_ms);
    }

    /// Keeps the bucket until its words have drained.
    pub(crate) fn outlast(&mut self, drained_at_us: u64) {
        let drained_at_ms = drained_at_us.div_ceil(1_000).min(EXACT);
        self.ends_ms = self.ends_ms.max(drained_at_ms);
    }
}
