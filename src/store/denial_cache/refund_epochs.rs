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

/// Numbers all refunds, and keeps the last one of each stripe.
pub(super) struct RefundEpochs {
    last: AtomicU64,
    /// The last refund in each stripe.
    stripes: Box<[AtomicU64]>,
    everywhere: AtomicU64,
}

impl RefundEpochs {
    pub(super) fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            stripes: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            everywhere: AtomicU64::new(0),
        }
    }

    /// Returns the number of the last refund so far.
    pub(super) fn seen(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(super) fn back(&self, stripes: &[u16]) {
        let number = self.next();
        for stripe in stripes {
            self.stripe(*stripe).fetch_max(number, Ordering::Release);
        }
    }

    pub(super) fn back_everywhere(&self) {
        self.everywhere.fetch_max(self.next(), Ordering::Release);
    }

    /// Whether a bucket in one of these stripes was refunded since then.
    pub(super) fn is_back_since(&self, seen: u64, stripes: &[u16]) -> bool {
        let is_later = |last: &AtomicU64| last.load(Ordering::Acquire) > seen;
        stripes.iter().any(|stripe| is_later(self.stripe(*stripe))) || is_later(&self.everywhere)
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    #[expect(clippy::expect_used, reason = "`stripe` keeps as many bits")]
    fn stripe(&self, stripe: u16) -> &AtomicU64 {
        let stripe = self.stripes.get(usize::from(stripe));
        stripe.expect("each hash has a stripe")
    }
}
