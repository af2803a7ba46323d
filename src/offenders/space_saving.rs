//! Which of many callers are counted most, in a fixed number of entries (Metwally, Agrawal and
//! El Abbadi, 2005: Space-Saving).
//!
//! A caller that is listed has an entry, which counts. A caller that is not listed takes the
//! entry with the lowest count: it may have been counted so often before, so that count is the
//! error of the new entry. So the true count of a listed caller is between `count - error` and
//! `count`, and that of any other caller is at most `floor`. As each unit raises one count by
//! one, `floor` is at most the total divided by the number of entries.

use hashbrown::HashTable;

/// The most callers that are listed.
pub(super) const ENTRIES: usize = 128;

/// The callers with the most counts. An id is a hash that no client can predict.
#[derive(Debug)]
pub(super) struct SpaceSaving<T> {
    entries: Vec<Entry<T>>,
    /// The place in `entries` of each id.
    places: HashTable<u8>,
    /// The most that a caller without an entry can have been counted. No count is lower.
    floor: u64,
    /// All counts together.
    total: u64,
    /// Where the search for the lowest count continues.
    cursor: usize,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    id: u64,
    pub(super) count: u64,
    /// By how much the count may be too high.
    pub(super) error: u64,
    pub(super) last_us: u64,
    pub(super) caller: T,
}

impl<T> SpaceSaving<T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            places: HashTable::new(),
            floor: 0,
            total: 0,
            cursor: 0,
        }
    }

    pub(super) fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    #[cfg(test)]
    pub(super) fn table_size(&self) -> usize {
        self.places.allocation_size()
    }

    /// Returns a caller, if it is listed.
    pub(super) fn listed(&self, id: u64) -> Option<&T> {
        let entry = self.entries.get(self.place_of(id)?)?;
        Some(&entry.caller)
    }
    fn place_of(&self, id: u64) -> Option<usize> {
        let entry = |place: &u8| self.entries.get(usize::from(*place));
        let is_its_place = |place: &u8| entry(place).is_some_and(|entry| entry.id == id);
        self.places.find(id, is_its_place).copied().map(usize::from)
    }

    /// Counts a caller, if it is listed, and returns it.
    pub(super) fn count_listed(&mut self, id: u64, now_us: u64) -> Option<&T> {
        let place = self.place_of(id)?;
        let entry = self.entries.get_mut(place)?;
        entry.count += 1;
        entry.last_us = entry.last_us.max(now_us);
        self.total += 1;
        Some(&entry.caller)
    }

    /// Counts a caller, and lists it.
    pub(super) fn count(&mut self, id: u64, now_us: u64, caller: T) {
        if self.count_listed(id, now_us).is_some() {
            return;
        }
        let entry = |error| Entry {
            id,
            count: error + 1,
            error,
            last_us: now_us,
            caller,
        };
        let place = if self.entries.len() < ENTRIES {
            self.entries.push(entry(self.floor));
            self.entries.len() - 1
        } else {
            let place = self.lowest();
            let Some(lowest) = self.entries.get_mut(place) else {
                return;
            };
            let (former, error) = (lowest.id, lowest.count);
            *lowest = entry(error);
            self.floor = error;
            self.cursor = place + 1;
            let is_its_place = |other: &u8| usize::from(*other) == place;
            if let Ok(found) = self.places.find_entry(former, is_its_place) {
                found.remove();
            }
            place
        };
        self.add_place(id, place);
        self.total += 1;
    }

    /// Returns the place of an entry with the lowest count. No count is below `floor`, so the
    /// search ends at the first that is as low. In a flood of new callers, most are.
    fn lowest(&self) -> usize {
        let all = || self.entries.iter().enumerate();
        let from_cursor = all().skip(self.cursor).chain(all().take(self.cursor));
        let mut at_floor = from_cursor.filter(|(_, entry)| entry.count <= self.floor);
        let lowest = at_floor.next();
        let lowest = lowest.or_else(|| all().min_by_key(|(_, entry)| entry.count));
        lowest.map_or(0, |(place, _)| place)
    }

    #[expect(clippy::expect_used, reason = "there are 128 entries at most")]
    fn add_place(&mut self, id: u64, place: usize) {
        let id_at = |place: &u8| {
            self.entries
                .get(usize::from(*place))
                .map_or(0, |entry| entry.id)
        };
        let place = u8::try_from(place).expect("there are 128 entries at most");
        self.places.insert_unique(id, place, id_at);
    }

    /// Halves all counts this many times, rounded down. Errors are rounded up: the true counts,
    /// each halved and rounded down in the same way, stay within them.
    pub(super) fn halve(&mut self, times: u32) {
        let down = |count: u64| count.checked_shr(times).unwrap_or(0);
        let up = |count: u64| down(count) + u64::from(down(count) << times.min(63) != count);
        self.entries.retain_mut(|entry| {
            entry.count = down(entry.count);
            entry.error = up(entry.error).min(entry.count);
            entry.count > 0
        });
        self.floor = down(self.floor);
        self.total = down(self.total);
        self.cursor = 0;
        self.places.clear();
        for place in 0..self.entries.len() {
            if let Some(id) = self.entries.get(place).map(|entry| entry.id) {
                self.add_place(id, place);
            }
        }
    }
}
