//! When units were last refunded: denials from before a refund are void.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Buckets share this many stripes. A refund to one bucket of a stripe costs the others a
/// round trip.
const STRIPES: usize = 1_024;

/// The stripes of a check's buckets.
pub(super) type Stripes = SmallVec<[u16; 4]>;

/// Returns the stripe of a bucket, by its hash.
pub(super) const fn stripe(hash: u64) -> u16 {
    (hash >> (u64::BITS - STRIPES.ilog2())) as u16
}

/// Returns the stripes of all buckets.
pub(super) fn all_stripes() -> Stripes {
    (0..STRIPES as u16).collect()
}

fn is_later(last: &AtomicU64, seen: u64) -> bool {
    last.load(Ordering::Acquire) > seen
}

/// Numbers all refunds, and keeps the last one of each stripe.
pub(super) struct RefundEpochs {
    last: AtomicU64,
    /// The last refund in each stripe.
    stripes: Box<[AtomicU64]>,
    everywhere: AtomicU64,
    /// The last reset in each stripe.
    resets: Box<[AtomicU64]>,
}

impl RefundEpochs {
    pub(super) fn new() -> Self {
        let stripes = || (0..STRIPES).map(|_| AtomicU64::new(0)).collect();
        Self {
            last: AtomicU64::new(0),
            stripes: stripes(),
            everywhere: AtomicU64::new(0),
            resets: stripes(),
        }
    }

    /// Returns the number of the last refund so far.
    pub(super) fn seen(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(super) fn back(&self, stripes: &[u16]) {
        let number = self.next();
        for last in of(&self.stripes, stripes) {
            last.fetch_max(number, Ordering::Release);
        }
    }

    /// The buckets are new: what was taken from them, and their strikes, are void.
    pub(super) fn reset(&self, stripes: &[u16]) {
        self.back(stripes);
        let number = self.seen();
        for last in of(&self.resets, stripes) {
            last.fetch_max(number, Ordering::Release);
        }
    }

    pub(super) fn back_everywhere(&self) {
        self.everywhere.fetch_max(self.next(), Ordering::Release);
    }

    /// Whether a bucket in one of these stripes was refunded since then.
    pub(super) fn is_back_since(&self, seen: u64, stripes: &[u16]) -> bool {
        let mut stripes = of(&self.stripes, stripes);
        stripes.any(|last| is_later(last, seen)) || is_later(&self.everywhere, seen)
    }

    /// Whether a bucket in one of these stripes was reset since then.
    pub(super) fn is_reset_since(&self, seen: u64, stripes: &[u16]) -> bool {
        let mut resets = of(&self.resets, stripes);
        resets.any(|last| is_later(last, seen))
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Returns the numbers of some stripes.
#[expect(clippy::expect_used, reason = "`stripe` keeps as many bits")]
fn of<'a>(all: &'a [AtomicU64], stripes: &'a [u16]) -> impl Iterator<Item = &'a AtomicU64> {
    stripes.iter().map(|stripe| {
        all.get(usize::from(*stripe))
            .expect("each hash has a stripe")
    })
}
