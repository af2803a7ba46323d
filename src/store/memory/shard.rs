//! One part of the buckets, under one lock.

use hashbrown::HashTable;

use super::entry::{BucketId, Entry, is_cell};
use crate::{quota::hold::Held, store::BucketWords};

/// The fields that every check uses come first, next to the lock.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Shard {
    /// The instant of the last decision.
    latest_us: u64,
    /// The instant of the next sweep.
    sweep_at_us: u64,
    entries: HashTable<Entry>,
    swept_at_us: u64,
    /// How many entries are cells of the sketch.
    cells: usize,
    capacity: usize,
}

const SWEEP_INTERVAL_US: u64 = 5_000_000;
/// The same for a shard that is full.
const SWEEP_INTERVAL_IF_FULL_US: u64 = 50_000;

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            latest_us: 0,
            sweep_at_us: 0,
            entries: HashTable::new(),
            swept_at_us: 0,
            cells: 0,
            capacity,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns whether the shard has no room for another caller after `coming` more.
    pub(super) fn is_full_with(&self, coming: usize) -> bool {
        let callers = self.entries.len() - self.cells;
        // The capacity may be the largest number there is.
        self.capacity.saturating_sub(coming) <= callers
    }

    /// Returns the instant of the last decision.
    pub(super) const fn latest_us(&self) -> u64 {
        self.latest_us
    }

    /// Notes the instant of a decision, and sweeps if that is due.
    #[inline]
    pub(super) fn begin(&mut self, now_us: u64) {
        if now_us >= self.sweep_at_us || now_us < self.swept_at_us {
            self.sweep(now_us);
        }
        self.latest_us = now_us;
    }

    /// Forgets the drained entries, and takes a smaller table if most of it is free.
    fn sweep(&mut self, now_us: u64) {
        // A clock that was set back only delays the sweep by one interval.
        if now_us >= self.swept_at_us {
            let mut cells = 0;
            self.entries.retain(|entry| {
                let is_kept = entry.drained_at_us() > now_us;
                cells += usize::from(is_kept && is_cell(entry.id));
                is_kept
            });
            self.cells = cells;
            let len = self.entries.len();
            if len < self.entries.capacity() / 4 {
                self.entries.shrink_to(2 * len, |entry| entry.id);
            }
        }
        self.swept_at_us = now_us;
        self.sweep_at_us = now_us + self.sweep_interval_us();
    }

    fn sweep_interval_us(&self) -> u64 {
        if self.is_full_with(0) {
            // At least 1 µs for each entry, whose sweep takes about 3 ns: a store of many
            // millions must not spend its time on sweeps.
            (self.len() as u64).clamp(SWEEP_INTERVAL_IF_FULL_US, SWEEP_INTERVAL_US)
        } else {
            SWEEP_INTERVAL_US
        }
    }

    #[inline]
    pub(super) fn find_mut(&mut self, id: BucketId) -> Option<&mut Entry> {
        self.entries.find_mut(id, |entry| entry.id == id)
    }

    /// Takes out the words of a bucket until they are [put](Self::put) back.
    #[inline]
    pub(super) fn take(&mut self, id: BucketId) -> BucketWords {
        self.find_mut(id).map(Entry::take_words).unwrap_or_default()
    }

    #[inline]
    pub(super) fn put(&mut self, id: BucketId, bucket: &mut BucketWords) {
        match self.find_mut(id) {
            Some(entry) => entry.put(bucket),
            None => self.insert(id, bucket),
        }
    }

    /// Puts back what is held of a bucket whose words are elsewhere.
    pub(super) fn put_held(&mut self, id: BucketId, held: Option<Box<Held>>) {
        let Some(held) = held else {
            self.remove(id);
            return;
        };
        let mut bucket = BucketWords {
            drained_at_us: Some(held.ends_us()),
            held: Some(held),
            ..BucketWords::default()
        };
        self.put(id, &mut bucket);
    }

    /// Adds a bucket that is not there yet, unless there is nothing to keep.
    pub(super) fn insert(&mut self, id: BucketId, bucket: &mut BucketWords) {
        let Some(entry) = Entry::new(id, bucket) else {
            return;
        };
        self.entries.insert_unique(id, entry, |entry| entry.id);
        self.cells += usize::from(is_cell(id));
        self.sweep_at_us = self
            .sweep_at_us
            .min(self.swept_at_us + self.sweep_interval_us());
    }

    pub(super) fn remove(&mut self, id: BucketId) {
        if let Ok(entry) = self.entries.find_entry(id, |entry| entry.id == id) {
            entry.remove();
            self.cells -= usize::from(is_cell(id));
        }
    }
}
