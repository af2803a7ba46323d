//! What was given back, and when: what was known before is not known any more.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Buckets are marked in so many parts together. Two in one part cost each
/// other a trip.
const PARTS: usize = 1_024;

/// The parts of a check's legs.
pub(super) type Parts = SmallVec<[u16; 4]>;

/// In which part a bucket is, by its hash.
pub(super) const fn part(hash: u64) -> u16 {
    (hash >> (u64::BITS - PARTS.ilog2())) as u16
}

/// Each time that something is given back has a number.
pub(super) struct Given {
    last: AtomicU64,
    /// The last in each part.
    parts: Box<[AtomicU64]>,
    everywhere: AtomicU64,
}

impl Given {
    pub(super) fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            parts: (0..PARTS).map(|_| AtomicU64::new(0)).collect(),
            everywhere: AtomicU64::new(0),
        }
    }

    /// The last time so far.
    pub(super) fn seen(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(super) fn back(&self, parts: &[u16]) {
        let number = self.next();
        for part in parts.iter().filter_map(|part| self.part(*part)) {
            part.fetch_max(number, Ordering::Release);
        }
    }

    pub(super) fn back_everywhere(&self) {
        self.everywhere.fetch_max(self.next(), Ordering::Release);
    }

    /// Whether any of them was given something since then.
    pub(super) fn is_back_since(&self, seen: u64, parts: &[u16]) -> bool {
        let mut parts = parts.iter().filter_map(|part| self.part(*part));
        parts.any(|part| part.load(Ordering::Acquire) > seen)
            || self.everywhere.load(Ordering::Acquire) > seen
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn part(&self, part: u16) -> Option<&AtomicU64> {
        self.parts.get(usize::from(part))
    }
}
