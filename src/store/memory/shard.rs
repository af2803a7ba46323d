//! One part of the buckets, under one lock.

use super::{
    entry::{Entry, Id},
    table::Table,
};
use crate::store::Slot;

/// What each check writes stands first, beside the lock.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Shard {
    /// The instant of the last decision.
    latest_us: u64,
    /// From then on there is something to tidy.
    tidy_from_us: u64,
    table: Table,
    capacity: usize,
    /// How far the present sweep has come.
    swept: usize,
    sweep_began_us: u64,
}

/// A sweep begins when this much time has passed since the last one did.
const SWEEP_EVERY_US: u64 = 5_000_000;
/// The same for a shard that is full.
const SWEEP_FULL_EVERY_US: u64 = 50_000;

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            latest_us: 0,
            tidy_from_us: 0,
            table: Table::default(),
            capacity,
            swept: 0,
            sweep_began_us: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.is_full_with(0)
    }

    /// Whether it will be when so many more have come.
    #[inline]
    pub(super) const fn is_full_with(&self, coming: usize) -> bool {
        // The capacity may be the largest number there is.
        self.capacity.saturating_sub(coming) <= self.table.callers()
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The instant of the last decision.
    #[inline]
    pub(super) const fn latest_us(&self) -> u64 {
        self.latest_us
    }

    /// Notes the instant of a decision, and does a small part of what is to be
    /// done now and then: moves buckets to where there is more room or less, or
    /// forgets what is drained.
    #[inline]
    pub(super) fn tidy(&mut self, now_us: u64) {
        // A clock that went backwards makes it time, too.
        if now_us >= self.tidy_from_us || now_us < self.latest_us {
            self.tidy_some(now_us);
        }
        self.latest_us = now_us;
    }

    #[cold]
    fn tidy_some(&mut self, now_us: u64) {
        let is_moving = self.table.is_moving();
        if now_us < self.sweep_began_us || (!is_moving && self.swept == 0) {
            self.sweep_began_us = now_us;
        }
        if is_moving {
            self.table.go_on();
            self.swept = 0;
        } else {
            self.swept = self.table.sweep(self.swept, now_us).unwrap_or(0);
            if self.swept == 0 {
                self.table.shrink();
            }
        }
        self.tidy_from_us = match self.is_full() {
            _ if self.table.is_moving() || self.swept > 0 => 0,
            true => self.sweep_began_us + SWEEP_FULL_EVERY_US,
            false => self.sweep_began_us + SWEEP_EVERY_US,
        };
    }

    /// Where a bucket stands, or should be put.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Result<usize, usize> {
        self.table.find(id)
    }

    /// The bucket that was [found](Self::find) there.
    #[inline]
    pub(super) fn get_mut(&mut self, id: Id, at: usize) -> Option<&mut Entry> {
        self.table.get_mut(id, at)
    }

    /// Puts a new bucket where [`find`](Self::find) said, if there is something to keep.
    pub(super) fn insert(&mut self, id: Id, at: usize, slot: Slot) {
        self.table.insert(id, at, slot);
        if self.table.is_moving() || self.table.callers() == self.capacity {
            self.tidy_from_us = 0;
        }
    }

    /// Puts a bucket's words back. It stood `at` that place, if nothing has moved it since.
    pub(super) fn put(&mut self, id: Id, at: usize, slot: Slot) {
        if let Some(bucket) = self.get_mut(id, at).filter(|bucket| bucket.id == id) {
            return bucket.put(slot);
        }
        match self.find(id) {
            Ok(at) => {
                if let Some(bucket) = self.get_mut(id, at) {
                    bucket.put(slot);
                }
            }
            Err(at) => self.insert(id, at, slot),
        }
    }

    pub(super) fn remove(&mut self, id: Id) {
        self.table.remove(id);
    }
}
