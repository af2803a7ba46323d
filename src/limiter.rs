//! Policies and a store, without HTTP.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    ConfigError, Decision, Key, Policy, StoreError,
    policy::{Compiled, check_names},
    store::{Answer, Check, Leg, Store},
};

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
/// assert_eq!(decision.refused().map(|policy| policy.name()).collect::<Vec<_>>(), ["per-user"]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// A store that cannot answer is an error here: what to do then is the
/// caller's choice. A layer has [`OnStoreFailure`](crate::OnStoreFailure) for it.
#[derive(Clone, Debug)]
pub struct Limiter {
    store: Arc<dyn Store>,
    policies: Arc<[Compiled]>,
}

impl Limiter {
    /// One policy, or a bare quota, on a store.
    ///
    /// # Panics
    ///
    /// Panics if the policy has a mistake, with the [`ConfigError`] that says
    /// what to change. [`builder`](Self::builder) returns it instead.
    #[must_use]
    #[track_caller]
    #[allow(clippy::panic)]
    pub fn new(store: impl Store, policy: impl Into<Policy>) -> Self {
        match Self::builder().store(store).policy(policy).build() {
            Ok(limiter) => limiter,
            Err(mistake) => panic!("{mistake}"),
        }
    }

    /// Starts a limiter of several policies, all charged or none.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Asks for one request of this caller: each policy's own
    /// [cost](Policy::cost), 1 where none was set.
    ///
    /// # Errors
    ///
    /// The store could not decide.
    pub async fn check(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        let key = key.into();
        let legs = self.legs(&key, None);
        let answer = self.store.check(&Check::charging(&legs));
        drop(legs);
        answer.wait().await
    }

    /// Asks for `units` at once, from every policy, whatever their own costs.
    /// 0 asks without taking.
    ///
    /// # Errors
    ///
    /// The store could not decide.
    pub async fn check_n(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        let key = key.into();
        let legs = self.legs(&key, Some(units));
        let answer = self.store.check(&Check::charging(&legs));
        drop(legs);
        answer.wait().await
    }

    /// What [`check`](Self::check) would say now. Takes and writes nothing;
    /// `remaining` is what is left before the request.
    ///
    /// # Errors
    ///
    /// The store could not answer.
    pub async fn peek(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        let key = key.into();
        let legs = self.legs(&key, None);
        let answer = self.store.check(&Check::peeking(&legs));
        drop(legs);
        answer.wait().await
    }

    /// Forgets what this caller has taken. [Shared](Policy::shared) buckets
    /// are not the caller's, and stay; see [`reset_shared`](Self::reset_shared).
    ///
    /// # Errors
    ///
    /// The store could not be reached, so it may not have forgotten.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        let key = key.into();
        self.forget(&key, false).wait().await
    }

    /// Forgets what all callers together have taken from the
    /// [shared](Policy::shared) policies.
    ///
    /// # Errors
    ///
    /// The store could not be reached, so it may not have forgotten.
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.forget(&Key::everyone(), true).wait().await
    }

    /// The Redis keys under which this caller's buckets are kept, one for each
    /// policy, to look at them with `redis-cli`. Empty for stores without such keys.
    #[must_use]
    pub fn redis_keys(&self, key: impl Into<Key>) -> Vec<String> {
        let key = key.into();
        let legs = self.legs(&key, None);
        let keys = legs.iter().filter_map(|leg| self.store.storage_key(leg));
        keys.collect()
    }

    fn forget(&self, key: &Key, shared: bool) -> Answer<()> {
        let mut legs = self.legs(key, None);
        let mut chosen = self.policies.iter().map(|policy| policy.shared == shared);
        legs.retain(|_| chosen.next().unwrap_or(false));
        if legs.is_empty() {
            return Answer::Now(Ok(()));
        }
        self.store.reset(&legs)
    }

    fn legs<'a>(&'a self, key: &'a Key, cost: Option<u64>) -> SmallVec<[Leg<'a>; 2]> {
        let leg = |policy: &'a Compiled| Leg {
            policy: &policy.name,
            quota: policy.quota,
            key: Cow::Borrowed(if policy.shared { &EVERYONE } else { key }),
            cost: cost.unwrap_or(policy.cost),
        };
        self.policies.iter().map(leg).collect()
    }
}

static EVERYONE: Key = Key::everyone();

/// Builds a [`Limiter`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimiterBuilder {
    store: Option<Arc<dyn Store>>,
    policies: Vec<Policy>,
}

impl LimiterBuilder {
    /// Where buckets are kept. Default: a [`MemoryStore`](crate::MemoryStore) of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Adds a policy, or a bare quota.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policies.push(policy.into());
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let policies: Arc<[Compiled]> = self
            .policies
            .iter()
            .map(Policy::compile)
            .collect::<Result<_, _>>()?;
        check_names(policies.iter().map(|policy| &policy.name))?;
        Ok(Limiter {
            store: self
                .store
                .unwrap_or_else(|| Arc::new(crate::MemoryStore::new())),
            policies,
        })
    }
}
