//! Stores keep buckets, and decide checks atomically.
//!
//! A [`Store`] sees policy names, quotas, key bytes and costs, and never HTTP. It answers at once
//! or later: memory without allocating or awaiting, Redis with a boxed future for each round trip.

mod answer;
mod breaker;
pub(crate) mod checked;
pub(crate) mod context;
pub(crate) mod decide;
#[cfg(feature = "redis")]
mod denial_cache;
mod fallback;
mod guarded;
pub(crate) mod handle;
mod health;
#[cfg(feature = "redis")]
mod in_runtime;
#[cfg(feature = "redis")]
mod lease;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod shadow;
pub(crate) mod tasks;
mod words;

use std::{fmt, sync::Arc};

pub(crate) use self::memory::MemoryStore;
#[cfg(not(feature = "unstable-store"))]
pub(crate) use self::words::BucketWords;
#[cfg(feature = "unstable-store")]
pub use self::words::BucketWords;
pub use self::{
    answer::{Answer, StoreFuture},
    fallback::Fallback,
    guarded::Guarded,
};
pub use crate::charge::{Charge, Check, Operation};
use crate::{Decision, Fingerprint, Key, metrics::store::StoreMetrics};

/// Keeps buckets, and decides checks.
///
/// Implement it to wrap one of this crate's stores: to count, to log, or to fail on purpose in a
/// test ([`StoreError::unavailable`](crate::StoreError::unavailable)). Or implement it to keep
/// buckets somewhere else. With the feature `unstable-store`, `Check::decide` computes every
/// algorithm on words that you read and write in one transaction. The feature `testing` has a
/// suite that tests the result.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tower_throttle::{
///     Decision, Fingerprint, Key, Limiter, MemoryStore, TokenBucket,
///     metrics::StoreMetrics,
///     store::{Answer, Charge, Check, Fallback, Store},
/// };
///
/// /// Counts the checks of another store.
/// #[derive(Debug)]
/// struct Counted<S> {
///     inner: S,
///     checks: AtomicU64,
/// }
///
/// impl<S: Store> Store for Counted<S> {
///     fn check(&self, check: &Check<'_>) -> Answer<Decision> {
///         self.checks.fetch_add(1, Ordering::Relaxed);
///         self.inner.check(check)
///     }
///
///     fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
///         self.inner.reset(charges)
///     }
///
///     fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
///         self.inner.storage_key(charge)
///     }
///
///     fn fingerprint(&self, key: &Key) -> Fingerprint {
///         self.inner.fingerprint(key)
///     }
///
///     fn fallback(&self) -> Option<Fallback> {
///         self.inner.fallback()
///     }
///
///     fn metrics(&self) -> StoreMetrics {
///         self.inner.metrics()
///     }
/// }
///
/// let store = Arc::new(Counted { inner: MemoryStore::new(), checks: AtomicU64::new(0) });
/// let limiter = Limiter::new(store.clone(), TokenBucket::per_minute(5));
/// assert!(limiter.check_now("ann")?.is_allowed());
/// assert_eq!(store.checks.load(Ordering::Relaxed), 1);
/// # Ok::<(), tower_throttle::StoreError>(())
/// ```
///
/// A store that wraps another passes on its [`storage_key`](Self::storage_key), its
/// [`fingerprint`](Self::fingerprint), its [`fallback`](Self::fallback) and its
/// [`metrics`](Self::metrics).
///
/// A check names one or more charges. The store reads all of them at one instant,
/// and charges all or none.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Applies the [operation](Check::operation) of the check to all its charges or none.
    fn check(&self, check: &Check<'_>) -> Answer<Decision>;

    /// Resets each charge's bucket. On an error, some may have been reset.
    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()>;

    /// Returns the name under which this charge's bucket is stored, if the store has names
    /// that an operator can look up.
    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        let _ = charge;
        None
    }

    /// Returns the name of a key in this store: in the names of buckets, in lists of denied callers,
    /// and in a [control document](crate::control). Default: the hash without a secret.
    fn fingerprint(&self, key: &Key) -> Fingerprint {
        Fingerprint::from(key)
    }

    /// Returns the fallback that decides while this store fails. Default: `None`, with which each
    /// limiter and layer makes its own.
    ///
    /// A store whose clones share their buckets returns one that the clones share, too.
    fn fallback(&self) -> Option<Fallback> {
        None
    }

    /// Returns the counts of the store. Default: none, under the name `custom`.
    ///
    /// Layers and limiters replace the numbers that they count themselves: failures, whether the
    /// store is up, held permits, held and settled units, and local buckets.
    ///
    /// If it panics, the store keeps the name that it last returned. The other numbers that it counts
    /// itself are left out until it returns again.
    fn metrics(&self) -> StoreMetrics {
        StoreMetrics::default()
    }

    /// The store in memory, if this is one: limiters and layers ask it directly.
    #[doc(hidden)]
    fn as_memory(&self) -> Option<&MemoryStore> {
        None
    }
}

impl<T: Store + ?Sized> Store for Arc<T> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        (**self).check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        (**self).reset(charges)
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        (**self).storage_key(charge)
    }

    fn fingerprint(&self, key: &Key) -> Fingerprint {
        (**self).fingerprint(key)
    }

    fn fallback(&self) -> Option<Fallback> {
        (**self).fallback()
    }

    fn metrics(&self) -> StoreMetrics {
        (**self).metrics()
    }

    fn as_memory(&self) -> Option<&MemoryStore> {
        (**self).as_memory()
    }
}
