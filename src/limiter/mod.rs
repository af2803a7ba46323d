//! Policies and a store, without HTTP.

mod builder;
mod inspect;
mod keyed;
mod operations;
mod wait;

use std::sync::Arc;

use self::keyed::{awaited, own_key};
use crate::{
    Buckets, Decision, Key, Policy, StoreError,
    charge::Operation,
    engine::{Engine, LimiterBuilder, Live},
    metrics::{Recorder, Snapshot},
    store::{Store, checked::Checked},
};

#[cfg(doc)]
use crate::{ConfigError, MemoryStore, OnStoreFailure};

/// Checks policies outside HTTP: jobs, sockets, outbound calls.
///
/// It shares its buckets with every layer and limiter that uses the same
/// policy names, keys and store. Cloning is cheap and shares everything.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy, TokenBucket};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::builder()
///     .store(MemoryStore::new())
///     .policy(Policy::new("per-user", TokenBucket::per_minute(5)))
///     .policy(Policy::new("everyone", FixedWindow::per_day(1_000)).shared())
///     .build()?;
///
/// let decision = limiter.check("user-42").await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.policies().map(|policy| policy.remaining()).collect::<Vec<_>>(), [4, 999]);
///
/// let decision = limiter.check_n("user-42", 5).await?;
/// assert_eq!(decision.denied_by().map(|policy| policy.name()).collect::<Vec<_>>(), ["per-user"]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// While the store cannot decide, [`OnStoreFailure`](crate::OnStoreFailure) chooses what happens, as in a layer. By
/// default, this process decides. With [`OnStoreFailure::Deny`](crate::OnStoreFailure::Deny) the check is an error.
#[derive(Clone, Debug)]
pub struct Limiter {
    pub(crate) engine: Live<Engine>,
}

impl Limiter {
    /// Creates a limiter of one policy, or of a bare quota, on a store.
    ///
    /// # Panics
    ///
    /// Panics if the policy has a configuration error. The message is that of the
    /// [`ConfigError`](crate::ConfigError), which [`builder`](Self::builder) returns instead.
    #[must_use]
    #[track_caller]
    #[allow(clippy::panic)]
    pub fn new(store: impl Store, policy: impl Into<Policy>) -> Self {
        match Self::builder().store(store).policy(policy).build() {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a limiter with several policies or other settings.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Checks one request of this caller. It charges each policy's own
    /// [cost](Policy::cost), by default 1.
    ///
    /// It does not wait. Under a [`LeakyBucket`](crate::LeakyBucket) with a queue,
    /// [`Decision::delay`] returns how long the caller has to wait.
    /// [`acquire`](Self::acquire) waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide. It is [`StoreError::is_unsupported`] for
    /// a [`Concurrency`](crate::Concurrency) policy, whose units are held, not used up: use
    /// [`acquire`](Self::acquire).
    pub async fn check(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        // The key is dropped before the future waits, so that the future stays small.
        let asked = {
            let key = key.into();
            let engine = self.engine.load();
            if let Some(decision) = engine.decide_directly(&key) {
                return Ok(decision);
            }
            let answer = engine.ask_for(Operation::Take, &key, None);
            (Arc::clone(&engine.recorder), answer)
        };
        Self::decide(asked).await
    }

    /// Decides as [`check`](Self::check) does, without `.await`: for code that is not async, or
    /// that uses a [`MemoryStore`](crate::MemoryStore) very often.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(2));
    /// assert_eq!(limiter.check_now("ann")?.policies().next().unwrap().remaining(), 1);
    /// assert!(limiter.check_now("ann")?.is_allowed());
    /// assert!(!limiter.check_now("ann")?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check), and one with
    /// [`StoreError::is_unsupported`] if the store cannot answer at once. A memory store always
    /// can. A Redis store can only if a denial is cached or units are leased. Nothing is taken
    /// if it cannot.
    pub fn check_now(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        let (engine, key) = (self.engine.load(), key.into());
        if let Some(decision) = engine.decide_directly(&key) {
            return Ok(decision);
        }
        match engine.ask_for(Operation::Take, &key, None) {
            Checked::Now(answer) => {
                engine.recorder.answered(&answer);
                answer
            }
            // Nothing was asked, so there is nothing to count.
            Checked::Later(_) => Err(StoreError::unsupported(
                "the store cannot answer at once; await `check(..)`",
            )),
        }
    }

    /// Checks for `units` at once, from every policy, whatever their own costs.
    /// 0 checks without taking.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check).
    pub async fn check_n(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        let asked = self.ask(Operation::Take, &key.into(), Some(units));
        Self::decide(asked).await
    }

    /// Takes as many units as every policy has left, at most `units`.
    /// [`Decision::charged`] returns how many. The check is denied if none are left.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(5));
    /// assert_eq!(limiter.take_up_to("ann", 3).await?.charged(), 3);
    /// assert_eq!(limiter.take_up_to("ann", 3).await?.charged(), 2);
    /// assert!(!limiter.take_up_to("ann", 3).await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check).
    pub async fn take_up_to(
        &self,
        key: impl Into<Key>,
        units: u64,
    ) -> Result<Decision, StoreError> {
        let asked = self.ask(Operation::TakeUpTo, &key.into(), Some(units));
        Self::decide(asked).await
    }

    /// Returns what [`check`](Self::check) would decide now. Takes and writes nothing;
    /// `remaining` is what is left before the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn peek(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        self.buckets(key).peek().await
    }

    /// Returns the buckets of a caller, to do several things with them.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(5));
    /// let ann = limiter.buckets("ann");
    /// let _ = ann.debit(7).await?;
    /// assert!(!ann.peek().await?.is_allowed());
    /// ann.reset().await?;
    /// assert!(ann.peek().await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn buckets(&self, key: impl Into<Key>) -> Buckets {
        let (engine, key) = (self.engine.load(), key.into());
        engine.buckets(|_, policy| Some(own_key(policy, &key)))
    }

    /// Returns the buckets of a caller that has a key of its own under each policy. `key` returns it,
    /// given the policy's name, and `None` if that policy does not apply.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Key, Limiter, MemoryStore, Policy};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::builder()
    ///     .store(MemoryStore::new())
    ///     .policy(Policy::new("account", FixedWindow::per_day(3)))
    ///     .policy(Policy::new("route", FixedWindow::per_day(1)))
    ///     .build()?;
    /// let call = |route: &'static str| {
    ///     limiter.buckets_by(move |policy| {
    ///         Some(Key::from(if policy == "route" { route } else { "partner" }))
    ///     })
    /// };
    /// assert!(call("/orders").acquire(Duration::ZERO).await?.is_allowed());
    /// assert!(!call("/orders").acquire(Duration::ZERO).await?.is_allowed());
    /// assert!(call("/prices").acquire(Duration::ZERO).await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// A [shared](Policy::shared) policy keeps its one bucket.
    #[must_use]
    pub fn buckets_by(&self, key: impl Fn(&str) -> Option<Key>) -> Buckets {
        let engine = self.engine.load();
        let policies = engine.policies.iter();
        let keys: Vec<_> = policies.map(|policy| key(&policy.name.text)).collect();
        engine.buckets(|place, policy| Some(own_key(policy, keys.get(place)?.as_ref()?)))
    }

    /// Returns the Redis keys of this caller's buckets, one for each policy, to inspect them
    /// with `redis-cli`. Those of shadow policies come last. The list is empty for stores without such keys.
    #[must_use]
    pub fn storage_keys(&self, key: impl Into<Key>) -> Vec<String> {
        self.buckets(key).storage_keys()
    }

    /// Returns how many checks this limiter and its clones have allowed and denied, and where
    /// the decisions came from: see [`metrics`](crate::metrics).
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, Policy, TokenBucket};
    ///
    /// let logins = Policy::new("logins", TokenBucket::per_minute(1));
    /// let limiter = Limiter::new(MemoryStore::new(), logins);
    /// assert!(limiter.check_now("ann")?.is_allowed());
    /// assert!(!limiter.check_now("ann")?.is_allowed());
    ///
    /// let seen = limiter.metrics();
    /// assert_eq!((seen.requests.allowed, seen.requests.denied), (1, 1));
    /// assert_eq!(seen.policy("logins").map(|checks| checks.denied), Some(1));
    /// # Ok::<(), tower_throttle::StoreError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        self.engine.load().metrics()
    }

    fn ask(&self, operation: Operation, key: &Key, units: Option<u64>) -> (Arc<Recorder>, Checked) {
        let engine = self.engine.load();
        let answer = engine.ask_for(operation, key, units);
        (Arc::clone(&engine.recorder), answer)
    }

    /// Waits for an answer, if it is not known yet, and counts it.
    async fn decide((recorder, answer): (Arc<Recorder>, Checked)) -> Result<Decision, StoreError> {
        match answer {
            Checked::Now(answer) => {
                recorder.answered(&answer);
                answer
            }
            Checked::Later(later) => awaited(recorder, later, Result::as_ref).await,
        }
    }
}
