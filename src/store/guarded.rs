//! A timeout and a circuit breaker around a remote store.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    Answer, Charge, Check, Fallback, Store,
    breaker::{Breaker, CallOutcome},
};
use crate::{
    Decision, Fingerprint, Key, Source, StoreError,
    error::StoreErrorKind,
    metrics::store::StoreMetrics,
    util::{detach::run_to_completion, hash::SecretHasher},
};

/// Puts a timeout and a circuit breaker around your own store:
/// [`RedisStore`](crate::RedisStore) has both built in.
///
/// An answer that takes longer than the timeout is a failure
/// ([`StoreError::is_timeout`]). The breaker opens after five failures in a row. It also
/// opens after ten failures within 200 ms, if they are at least half of the calls. While it
/// is open, checks fail at once. After a pause, a single check is the probe: it tests
/// whether the store answers again.
///
/// The pause is 50 ms. Each failed probe doubles it, up to a second, and up to a quarter is
/// added at random. It stays 50 ms while the store returns
/// [unavailable](StoreError::is_unavailable).
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, MemoryStore, TokenBucket, store::Guarded};
///
/// let far = MemoryStore::new(); // imagine a database
/// let store = Guarded::new(far).timeout(Duration::from_millis(20));
/// let limiter = Limiter::new(store, TokenBucket::per_second(10));
/// ```
///
/// If its caller is dropped, a check runs on until it is answered or times out. Otherwise
/// impatient callers would hide that the store hangs.
///
/// A timeout needs a Tokio runtime with timers.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    store: S,
    timeout: Duration,
    breaker: Arc<Breaker>,
    fallback: Fallback,
}

impl<S: Store> Guarded<S> {
    /// Creates a guard around a store, with a timeout of 50 ms.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            timeout: Duration::from_millis(50),
            breaker: Arc::new(Breaker::new(SecretHasher::default())),
            fallback: store.fallback().unwrap_or_default(),
            store,
        }
    }

    /// Sets how long a check may take. Default: 50 ms. A check that timed out may still be
    /// charged.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Asks the store if the breaker permits it. `outcome` judges an answer that is known
    /// at once.
    fn guard<T: Send + 'static>(
        &self,
        is_refund: bool,
        ask: impl FnOnce() -> Answer<T>,
        outcome: impl FnOnce(&Result<T, StoreError>) -> CallOutcome,
    ) -> Answer<T> {
        let permit = match self.breaker.try_acquire(is_refund) {
            Ok(permit) => permit,
            Err(error) => return Answer::Now(Err(error)),
        };
        match ask() {
            Answer::Now(answer) => {
                permit.record_outcome(outcome(&answer), answer.as_ref().err());
                Answer::Now(answer)
            }
            Answer::Later(answer) => {
                let limit = self.timeout;
                Answer::Later(Box::pin(run_to_completion(async move {
                    let late = |_| Err(StoreError::new(StoreErrorKind::Timeout));
                    let answer = timeout(limit, answer).await.unwrap_or_else(late);
                    let error = answer.as_ref().err();
                    permit.record_outcome(CallOutcome::of_store(&answer), error);
                    answer
                })))
            }
        }
    }
}

/// Judges a decision that is known at once.
fn outcome(answer: &Result<Decision, StoreError>) -> CallOutcome {
    match answer {
        // A decision that did not come from the store does not show its health.
        Ok(decision) if decision.source() != Source::Store => CallOutcome::Unused,
        answer => CallOutcome::of_store(answer),
    }
}

impl<S: Store> Store for Guarded<S> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let is_refund = check.operation().is_of_taken();
        self.guard(is_refund, || self.store.check(check), outcome)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.guard(false, || self.store.reset(charges), CallOutcome::of_store)
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        self.store.storage_key(charge)
    }

    fn fingerprint(&self, key: &Key) -> Fingerprint {
        self.store.fingerprint(key)
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.fallback.clone())
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = self.store.metrics();
        let open = metrics.breakers_open.get_or_insert(0);
        *open += u64::from(self.breaker.is_open());
        metrics
    }
}
