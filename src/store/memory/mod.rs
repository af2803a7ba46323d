//! Buckets in this process.
//!
//! A *shard* is a part of the buckets, under one lock. If it is full, a *newcomer*, a caller without a
//! bucket of its own, is charged to two *cells* that newcomers share (`sketch.rs`). A bucket is *drained*
//! from the instant at which it means the same as none.

pub(super) mod buckets;
mod entry;
mod shard;
mod sketch;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::OnceLock;

use self::buckets::Buckets;
use super::{Answer, Charge, Check, Fallback, Store};
use crate::control::Control;
use crate::{Clock, Decision, clock::SystemClock, metrics::store::StoreMetrics};

/// Keeps buckets in this process: the default store. It needs no server and no task.
///
/// Each process has counts of its own, so a fleet of n processes admits n times
/// the quota. Share a [`RedisStore`](crate::RedisStore) if that is too much.
///
/// ```
/// use tower_throttle::{Limiter, MemoryStore, Policy, TokenBucket};
///
/// let store = MemoryStore::new();
/// let search = Limiter::new(store.clone(), Policy::new("search", TokenBucket::per_hour(1)));
/// assert!(search.check_now("ann")?.is_allowed());
/// assert!(!search.check_now("ann")?.is_allowed());
/// assert!(search.check_now("bob")?.is_allowed());
///
/// // Clones of a store share their buckets, here those of the policy `search`.
/// let same = Limiter::new(store, Policy::new("search", TokenBucket::per_hour(1)));
/// assert!(!same.check_now("ann")?.is_allowed());
/// # Ok::<(), tower_throttle::StoreError>(())
/// ```
///
/// **Bounded.** The store keeps at most [`capacity`](MemoryStoreBuilder::capacity) buckets,
/// 1,000,000 by default, in up to 64 parts of equal size. A bucket that is full of units again
/// means the same as no bucket. The first check of a part after 5 seconds forgets all such
/// buckets of the part. If the part is full, it is the first check after 50 ms, or after 1 µs
/// for each bucket and cell of the part if that is longer. A bucket in use is never
/// forgotten.
///
/// **New callers of a full store.** If a part is full of buckets in use, callers without a bucket
/// share cells. For each quota there are half as many cells as the capacity, allocated as they are
/// used. A secret hash chooses two cells for a caller. The caller is charged to both, and the
/// emptier one decides: a count-min sketch. A [`SlidingLog`](crate::SlidingLog) has one cell for
/// each caller.
///
/// A caller is never admitted beyond its limit. It may be denied below its limit if others have
/// used up both cells, or if a cell is charged in every window. 99 of 100 new callers are admitted
/// after these requests, in one window or in a row of windows in which all cells are charged:
/// - limit x capacity / 4 requests of invented callers that send one request each, for limits of 10 and
///   more (for a limit of 50: 1,250,000 if 100,000 buckets are kept), or
/// - limit x capacity / 50 requests of invented callers that use up their limits.
///
/// The window of a cell ends once no unit was charged to it for the length of a window. A new
/// caller that sends requests in every window has one window's limit until it pauses. Cells get no
/// refunds and no resets, and hold only the tokens of
/// [`initial`](crate::TokenBucket::initial). A new caller gets a bucket of
/// its own once one is free. A check of cells takes several times as long as one of a bucket.
///
/// **Small.** A bucket is two words and 63 bits of a keyed hash of its caller:
/// 24 bytes in a hash table that doubles when it is seven eighths full. That is 28 to 57
/// bytes for each caller, and 53 MB for a million, with the cells of one quota. The cells
/// of up to four more quotas double that.
///
/// Some buckets take 40 bytes more: those of a [`SlidingWindow`](crate::SlidingWindow), of tokens
/// that are refilled [at once](crate::TokenBucket::refill_at_once) or start with
/// [`initial`](crate::TokenBucket::initial), and in debt. The buckets of a
/// [`SlidingLog`](crate::SlidingLog) and of a [`Concurrency`](crate::Concurrency) do, too. In
/// addition, they keep two words for each entry, and seven words for each limiter that holds
/// permits. Permits are kept beyond the capacity: there are at most as many as requests in flight.
///
/// **Short pauses.** A part is swept in one go, and its table doubles in one go. Other
/// checks of that part wait meanwhile. A part of a million callers holds some 15,000. To sweep
/// them takes about 0.04 ms, or 0.2 to 0.5 ms if all their buckets are full again. To double their
/// table takes up to 0.5 ms, mostly for memory that the system provides for the first time.
///
/// A flood of new callers does not admit a caller that has a bucket and is over its limit. Choose a
/// capacity for the callers that you expect in one window.
///
/// Cloning shares the buckets.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Buckets>, Fallback, Arc<str>, Arc<OnceLock<Control>>);

impl MemoryStore {
    /// Creates a store with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to build a store with other settings.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: 1_000_000,
            clock: Arc::new(SystemClock::new()),
            name: "memory".into(),
        }
    }

    /// Returns how many buckets and cells are kept now, including buckets that are full again
    /// and not forgotten yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a control document for this process, the same for all clones. The ends of its
    /// entries follow the store's clock.
    #[must_use]
    pub fn control(&self) -> Control {
        self.3
            .get_or_init(|| Control::in_memory_with(self.clock()))
            .clone()
    }

    /// Returns the clock of its decisions.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }

    /// Takes from one bucket, as most requests do.
    pub(crate) fn take(&self, charge: &Charge<'_>) -> Decision {
        self.0.take(charge)
    }

    /// Returns whether no bucket is kept.
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

/// Builds a [`MemoryStore`] with another capacity, clock or name.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tower_throttle::{Limiter, ManualClock, MemoryStore, TokenBucket};
///
/// let clock = Arc::new(ManualClock::new());
/// let store = MemoryStore::builder()
///     .capacity(10_000)
///     .clock(clock.clone())
///     .build();
/// let limiter = Limiter::new(store, TokenBucket::per_minute(1));
/// assert!(limiter.check_now("ann")?.is_allowed());
/// assert!(!limiter.check_now("ann")?.is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check_now("ann")?.is_allowed());
/// # Ok::<(), tower_throttle::StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Arc<dyn Clock>,
    name: Arc<str>,
}

impl MemoryStoreBuilder {
    /// Sets how many buckets to keep at most, one for each policy and caller. Default:
    /// 1,000,000. At least 1; with so few, nearly all callers share one.
    ///
    /// It is rounded up to a multiple of the number of parts: 64, or fewer if a
    /// part would have fewer than 64 buckets. Once the store is full, it also keeps half as many
    /// cells for each quota.
    pub const fn capacity(mut self, buckets: usize) -> Self {
        self.capacity = if buckets == 0 { 1 } else { buckets };
        self
    }

    /// Reads the time from `clock`, in tests for example. Default: the machine's clock, read
    /// when the store is built and carried forward monotonically. So a later correction of
    /// that clock neither locks a caller out nor admits one early. Windows aligned to UTC, and
    /// resets sent as a UNIX time, follow the clock as it was then.
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the label `store` of the store's [metrics](crate::metrics). Default: `memory`.
    ///
    /// Stores with one name are added up.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().into();
        self
    }

    /// Builds the store. Memory is taken as callers come.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore(
            Arc::new(Buckets::new(self.capacity, self.clock)),
            Fallback::new(),
            self.name,
            Arc::default(),
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

    /// It never decides. All layers and limiters on this store share it to compare their
    /// policies.
    fn fallback(&self) -> Option<Fallback> {
        Some(self.1.clone())
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = StoreMetrics {
            name: (*self.2).to_owned(),
            ..self.0.metrics()
        };
        if let Some(control) = self.3.get() {
            control.held().add_to(&mut metrics);
        }
        metrics
    }

    fn as_memory(&self) -> Option<&MemoryStore> {
        Some(self)
    }
}
