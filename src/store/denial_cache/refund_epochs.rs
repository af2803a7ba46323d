//! When units were last refunded: denials from before a refund are void.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Buckets share this many stripes. A refund to one bucket of a stripe costs the others a
/// round trip.
const STRIPES: usize = 1_024;

/// Secret hashes of a check's buckets.
pub(super) type Hashes = SmallVec<[u32; 4]>;

/// The highest bits of a hash choose the stripe.
const SHIFT: u32 = u32::BITS - STRIPES.ilog2();

/// Returns a hash of each stripe: it stands for all buckets.
pub(super) fn all_buckets() -> Hashes {
    (0..STRIPES as u32).map(|stripe| stripe << SHIFT).collect()
}

fn is_later(all: &[AtomicU64], buckets: &[u32], seen: u64) -> bool {
    of(all, buckets).any(|last| last.load(Ordering::Acquire) > seen)
}

/// Numbers all refunds, and keeps the last one of each stripe.
pub(super) struct RefundEpochs {
    last: AtomicU64,
    /// The last refund in each stripe.
    stripes: Box<[AtomicU64]>,
    /// The last reset in each stripe.
    resets: Box<[AtomicU64]>,
}

impl RefundEpochs {
    pub(super) fn new() -> Self {
        let stripes = || (0..STRIPES).map(|_| AtomicU64::new(0)).collect();
        Self {
            last: AtomicU64::new(0),
            stripes: stripes(),
            resets: stripes(),
        }
    }

    /// Returns the number of the last refund so far.
    pub(super) fn seen(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(super) fn back(&self, buckets: &[u32]) {
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        for last in of(&self.stripes, buckets) {
            last.fetch_max(number, Ordering::Release);
        }
    }

    /// Records that the buckets are new: the units taken from them, and their strikes, are void.
    pub(super) fn reset(&self, buckets: &[u32]) {
        self.back(buckets);
        let number = self.seen();
        for last in of(&self.resets, buckets) {
            last.fetch_max(number, Ordering::Release);
        }
    }

    /// Whether one of these buckets was refunded since then.
    pub(super) fn is_back_since(&self, seen: u64, buckets: &[u32]) -> bool {
        is_later(&self.stripes, buckets, seen)
    }

    /// Whether one of these buckets was reset since then.
    pub(super) fn is_reset_since(&self, seen: u64, buckets: &[u32]) -> bool {
        is_later(&self.resets, buckets, seen)
    }
}

/// Returns the numbers of the stripes of some buckets.
#[expect(clippy::expect_used, reason = "as many bits are left")]
fn of<'a>(all: &'a [AtomicU64], buckets: &'a [u32]) -> impl Iterator<Item = &'a AtomicU64> {
    buckets.iter().map(|hash| {
        all.get((hash >> SHIFT) as usize)
            .expect("each hash has a stripe")
    })
}
