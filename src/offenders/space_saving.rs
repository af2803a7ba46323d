//! Which of many callers are counted most, in a fixed number of entries (Metwally, Agrawal and
//! El Abbadi, 2005: Space-Saving).
//!
//! A caller that is listed has an entry, which counts. A caller that is not listed takes the
//! entry with the lowest count: it may have been counted so often before, so that count is the
//! error of the new entry. So the true count of a listed caller is between `count - error` and
//! `count`, and that of any other caller is at most `floor`. As each unit raises one count by
//! one, `floor` is at most the total divided by the number of entries.

use std::collections::HashMap;

/// The most callers that are listed.
pub(super) const ENTRIES: usize = 128;

/// The callers with the most counts, by an id: a hash that no client can predict.
#[derive(Debug)]
pub(super) struct SpaceSaving<T> {
    pub(super) entries: HashMap<u64, Entry<T>>,
    /// The most that a caller without an entry can have been counted. No count is lower.
    pub(super) floor: u64,
    /// All counts together.
    pub(super) total: u64,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) count: u64,
    /// By how much the count may be too high.
    pub(super) error: u64,
    pub(super) last_us: u64,
    pub(super) caller: T,
}

impl<T> Default for SpaceSaving<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            floor: 0,
            total: 0,
        }
    }
}

impl<T> SpaceSaving<T> {
    /// Counts a caller, if it is listed. Returns whether it is.
    pub(super) fn count_listed(&mut self, id: u64, now_us: u64) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.is_some_and(|entry| {
            entry.count += 1;
            entry.last_us = entry.last_us.max(now_us);
            self.total += 1;
            true
        })
    }

    /// Counts a caller, and lists it.
    pub(super) fn count(&mut self, id: u64, now_us: u64, caller: T) {
        if self.count_listed(id, now_us) {
            return;
        }
        if self.entries.len() == ENTRIES {
            let lowest = self.entries.iter().min_by_key(|(_, entry)| entry.count);
            let lowest = lowest.map(|(id, entry)| (*id, entry.count));
            if let Some((former, count)) = lowest {
                self.entries.remove(&former);
                self.floor = count;
            }
        }
        let entry = Entry {
            count: self.floor + 1,
            error: self.floor,
            last_us: now_us,
            caller,
        };
        self.entries.insert(id, entry);
        self.total += 1;
    }

    /// Halves all counts this many times, rounded down. Errors are rounded up: the true counts,
    /// each halved and rounded down in the same way, stay within them.
    pub(super) fn halve(&mut self, times: u32) {
        let down = |count: u64| count.checked_shr(times).unwrap_or(0);
        let up = |count: u64| down(count) + u64::from(down(count) << times.min(63) != count);
        self.entries.retain(|_, entry| {
            entry.count = down(entry.count);
            entry.error = up(entry.error).min(entry.count);
            entry.count > 0
        });
        self.floor = down(self.floor);
        self.total = down(self.total);
    }
}
