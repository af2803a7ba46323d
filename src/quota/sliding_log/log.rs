//! The entries of a log, as they are stored.
//!
//! An entry is the instant at which units were taken, and the number of units before it. The
//! count runs through all entries, so the units between two of them are one subtraction.

use crate::quota::arithmetic::State;

/// Counts wrap around here, as in Redis, where they have five bytes.
pub(super) const ROUND: u64 = 1 << 40;

/// Returns the units from one count to a later one.
pub(super) const fn between(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % ROUND
}

/// Entries, the oldest first.
#[derive(Clone, Copy)]
pub(super) struct Log<'s> {
    /// When units were taken.
    pub(super) times_us: &'s [u64],
    /// The number of units before each entry, and at the end that of all units.
    pub(super) counts: &'s [u64],
}

impl<'s> Log<'s> {
    /// Reads words: the first half are times, the others counts.
    pub(super) fn new(words: &'s [u64]) -> Self {
        let (times_us, counts) = words.split_at(words.len() / 2);
        Self { times_us, counts }
    }

    pub(super) fn from(self, place: usize) -> Self {
        Self {
            times_us: self.times_us.get(place..).unwrap_or_default(),
            counts: self.counts.get(place..).unwrap_or_default(),
        }
    }

    /// Returns the units of all entries.
    pub(super) fn units(&self) -> u64 {
        match self.counts {
            [first, .., all] => between(*first, *all),
            _ => 0,
        }
    }

    /// Returns when the unit with this number was taken, counted from the oldest; 0 for none.
    pub(super) fn time_of_us(&self, unit: u64) -> u64 {
        let Some((first, ends)) = self.counts.split_first() else {
            return 0;
        };
        let place = ends.partition_point(|end| between(*first, *end) < unit);
        let time_us = self.times_us.get(place).filter(|_| unit > 0);
        time_us.copied().unwrap_or(0)
    }

    /// Returns how many units were taken at this instant.
    pub(super) fn units_at(&self, time_us: u64) -> u64 {
        let Ok(place) = self.times_us.binary_search(&time_us) else {
            return 0;
        };
        match self.counts.get(place..) {
            Some([before, after, ..]) => between(*before, *after),
            _ => 0,
        }
    }
}

/// Removes entries. The counts behind them still include their units.
pub(super) fn remove(state: &mut State, from: usize, to: usize) {
    let entries = state.len() / 2;
    state.drain(entries + from..entries + to);
    state.drain(from..to);
}

/// Moves the newest entry to the present.
pub(super) fn move_newest(state: &mut State, now_us: u64) {
    let newest = (state.len() / 2).checked_sub(1);
    if let Some(time_us) = newest.and_then(|newest| state.get_mut(newest)) {
        *time_us = now_us;
    }
}
