//! Buckets in this process.

pub(super) mod buckets;
mod entry;
mod shard;
mod sketch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::buckets::Buckets;
use super::{Answer, Charge, Check, Fallback, Store};
use crate::{Clock, Decision, SystemClock};

/// Keeps buckets in this process: the default store. No server, no task.
///
/// Each process counts for itself, so a fleet of n processes admits n times
/// the quota. Share a [`RedisStore`](crate::RedisStore) where that is too much.
///
/// **Bounded.** At most [`capacity`](MemoryStoreBuilder::capacity) buckets,
/// 1,000,000 by default, in up to 64 parts of equal size. A bucket from which
/// nothing is taken any more means the same as none, and is forgotten as
/// requests go by: by the first check of a part after 5 seconds, or after 50 ms if the part
/// is full. A bucket in use is never forgotten.
///
/// **Newcomers of a full store.** Where a part is full of buckets in use, callers
/// that have none share cells: half as many as the capacity for each quota,
/// allocated as they are used. A caller is charged to two cells, chosen by its secret
/// hash, and judged by the emptier one (a count-min sketch; a
/// [`SlidingLog`](crate::SlidingLog) has one cell for each caller). It is never admitted
/// beyond its limit. It may be denied below its limit, where others have used up both
/// cells, or where a cell is charged in every window. 99 of 100 newcomers are admitted
/// after, in one window or in a row of windows in which all cells are charged,
/// - limit x capacity / 4 requests of junk callers that ask once, for limits of 10 and
///   more (of a limit of 50: 1,250,000 where 100,000 buckets are kept), and
/// - limit x capacity / 50 requests of junk callers that use up their limits.
///
/// The window of a cell ends when nothing was charged to it for as long. A newcomer that
/// asks in every window is held to one window's limit until it pauses. Nothing is refunded
/// to cells, they are not reset, and tokens of [`initial`](crate::TokenBucket::initial)
/// are all that they hold. A newcomer gets a bucket of its own, which has counted nothing
/// yet, once there is room.
/// A check of cells takes about 0.8 µs, where one of a bucket takes 0.1.
///
/// **Small.** A bucket is one or two words and 63 bits of a keyed hash of its caller:
/// 24 bytes in a hash table that doubles when it is seven eighths full. That is 28 to 57
/// bytes for each caller, and 53 MB for a million, with the cells of one quota. The cells
/// of up to four more quotas double that.
/// A bucket of a [`SlidingWindow`](crate::SlidingWindow), of tokens that flow in
/// [at once](crate::TokenBucket::refill_at_once) or in debt takes 40 bytes more.
/// So does a [`SlidingLog`](crate::SlidingLog), which
/// keeps one word for each unit besides, and [`Concurrency`](crate::Concurrency), which
/// keeps seven words for each limiter that holds permits.
/// Permits are kept beyond the capacity: there are no more than requests in flight.
///
/// **Short pauses.** A part is swept at once, and a table that is full doubles at once:
/// meanwhile the other callers of that part wait. Of a million callers some 15,000 are in
/// each part. To sweep these takes less than 0.1 ms, and to double their table 0.4 ms,
/// most of it for memory that the system hands out for the first time.
///
/// So a flood of new callers frees no caller that has a bucket and is over its
/// limit. Give the store room for the callers that you expect in one window.
///
/// Cloning shares the buckets.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Buckets>, Fallback);

impl MemoryStore {
    /// A store with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts a store with settings.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: 1_000_000,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// How many buckets are kept now, those not yet forgotten among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Decides a check: one policy directly, several together.
    #[inline]
    pub(super) fn decide(&self, check: &Check<'_>) -> Decision {
        self.0.decide(check)
    }

    /// Whether no bucket is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// The most buckets to keep, one for each policy and caller. Default: 1,000,000.
    /// At least 1; with so few, nearly all callers share one.
    ///
    /// Rounded up to a multiple of the number of parts: 64, or fewer where a
    /// part would have fewer than 64 buckets. Half as many cells are kept besides, for
    /// each quota, once newcomers find no room.
    pub const fn capacity(mut self, buckets: usize) -> Self {
        self.capacity = if buckets == 0 { 1 } else { buckets };
        self
    }

    /// Takes the time from `clock`: for tests. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the store. Memory is taken as callers come.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore(
            Arc::new(Buckets::new(self.capacity, self.clock)),
            Fallback::new(),
        )
    }
}

impl Store for MemoryStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.0.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }

    /// Never asked to decide: all layers and limiters on this store share what it knows
    /// of their policies.
    fn fallback(&self) -> Option<Fallback> {
        Some(self.1.clone())
    }

    fn as_memory(&self) -> Option<&MemoryStore> {
        Some(self)
    }
}
