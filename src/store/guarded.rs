//! Deadline and breaker around a store that answers from afar.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    Answer, Charge, Check, Fallback, Store,
    breaker::{Breaker, Ended},
    finished::to_its_end,
    keyed::KeyedHash,
};
use crate::{Decision, Source, StoreError, error::StoreErrorKind};

/// Puts a timeout and a circuit breaker around a store of your own: what
/// [`RedisStore`](crate::RedisStore) has built in.
///
/// An answer that takes longer than the timeout is a failure
/// ([`StoreError::is_timeout`]). Five failures in a row, or ten and half of all
/// within 200 ms, open the breaker: checks fail at once then, but for a single
/// one after a pause, which finds out whether the store answers again. The
/// pause is 50 ms, twice as long after each such probe that fails, at most a
/// second, and up to a quarter more at random. It stays 50 ms while the store
/// says that it cannot be reached ([`StoreError::is_unavailable`]).
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
/// A check whose caller leaves goes on by itself until it is answered or its
/// timeout passes: otherwise impatient callers would keep it from being known
/// that the store hangs.
///
/// A timeout needs a Tokio runtime with timers.
#[derive(Clone)]
pub struct Guarded<S> {
    store: S,
    timeout: Duration,
    breaker: Arc<Breaker>,
    fallback: Fallback,
}

impl<S: Store> Guarded<S> {
    /// Guards a store, with a timeout of 50 ms.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            timeout: Duration::from_millis(50),
            breaker: Arc::new(Breaker::new(KeyedHash::new())),
            fallback: store.fallback().unwrap_or_default(),
            store,
        }
    }

    /// How long a check may take. Default: 50 ms. After that it may still be charged.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// `ended`: what an answer that came at once tells of the store.
    fn guard<T: Send + 'static>(
        &self,
        is_refund: bool,
        ask: impl FnOnce() -> Answer<T>,
        ended: impl FnOnce(&Result<T, StoreError>) -> Ended,
    ) -> Answer<T> {
        let Some(pass) = self.breaker.pass(is_refund) else {
            return Answer::Now(Err(StoreError::left_alone()));
        };
        match ask() {
            Answer::Now(answer) => {
                pass.ended(ended(&answer));
                Answer::Now(answer)
            }
            Answer::Later(answer) => {
                let limit = self.timeout;
                let call = async move {
                    let answer = timeout(limit, answer).await;
                    let answer =
                        answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)));
                    pass.ended(told(&answer));
                    answer
                };
                Answer::Later(Box::pin(to_its_end(call)))
            }
        }
    }
}

/// What an answer tells of the store. That it has too much to do, it has said itself.
fn told<T>(answer: &Result<T, StoreError>) -> Ended {
    match answer {
        Err(error) if error.is_overloaded() => Ended::Answered,
        answer => Ended::of(answer),
    }
}

impl<S: Store> Store for Guarded<S> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        // What it said once says nothing of how it does now.
        let ended = |answer: &Result<Decision, _>| match answer {
            Ok(decision) if decision.source() != Source::Store => Ended::Unused,
            answer => told(answer),
        };
        let is_refund = check.operation().is_refund_or_renewal();
        self.guard(is_refund, || self.store.check(check), ended)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.guard(false, || self.store.reset(charges), told)
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        self.store.storage_key(charge)
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.fallback.clone())
    }
}

impl<S: Store> fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("store", &self.store)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
