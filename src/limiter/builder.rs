//! From a [`LimiterBuilder`] to a limiter.

use std::sync::Arc;

use super::Limiter;
use crate::{
    ConfigError, Lists, OnStoreFailure, Policy, Replacement,
    control::Control,
    engine::{Engine, LimiterBuilder, Live},
    metrics::Observe,
    store::Store,
};

#[cfg(doc)]
use crate::Decision;

impl LimiterBuilder {
    /// Sets where buckets are kept. Default: a [`MemoryStore`](crate::MemoryStore) of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Adds a policy, or a bare quota. A check is admitted if all policies admit it.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policies.push(policy.into());
        self
    }

    /// Sets which keys are not limited and which are denied, whatever the policies decide. Default:
    /// none.
    ///
    /// The limiter keeps a clone: [`Lists::replace`] takes effect with the next check. Listed
    /// addresses have no effect here, because a limiter has no request: see [`Lists::find_ip`].
    ///
    /// If a key of any policy is on the deny list, its checks are denied; earlier use of that key can
    /// still be debited and credited. A policy whose key is on the allow list is not asked and never
    /// charged, not even by [`debit`](crate::Limiter::debit). If no policy is left, the check is
    /// admitted. What a list decides needs no store: [`Decision::source`](crate::Decision::source) is
    /// [`Source::List`](crate::Source::List).
    ///
    /// ```
    /// use tower_throttle::{Limiter, Lists, Policy, Source, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mail", TokenBucket::per_minute(5)))
    ///     .lists(Lists::new().deny_keys("mail", ["mallory"])?)
    ///     .build()?;
    /// let decision = limiter.check_now("mallory")?;
    /// assert_eq!((decision.is_allowed(), decision.source()), (false, Source::List));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lists(mut self, lists: Lists) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Lets the limiter follow a control document: other quotas and bans of single callers, modes of
    /// policies, and lists. Default: none.
    ///
    /// The document has precedence over this builder and over
    /// [`quota_by`](crate::Policy::quota_by), and takes effect with the next request. An entry
    /// that this limiter cannot take is left out and reported in the log; the others apply. The [guide]
    /// explains each entry.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Policy, TokenBucket, control::Control};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// let control = Control::in_memory(); // or that of a `RedisStore`
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("plan", TokenBucket::per_minute(1)))
    ///     .control(control.clone())
    ///     .build()?;
    /// control.override_quota("plan", "ann", "3 per minute".parse()?).await?;
    ///
    /// assert!(limiter.check("ann").await?.is_allowed());
    /// assert!(limiter.check("ann").await?.is_allowed());
    /// assert!(limiter.check("bob").await?.is_allowed());
    /// assert!(!limiter.check("bob").await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// [guide]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/control/
    pub fn control(mut self, control: Control) -> Self {
        self.control = Some(control);
        self
    }

    /// Sets what happens while the store cannot decide, for policies
    /// [without a setting of their own](Policy::on_store_failure). Default:
    /// [`OnStoreFailure::local`].
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.on_store_failure = choice;
        self
    }

    /// Makes all policies [shadow policies](Policy::shadow): the limiter checks and counts, and
    /// denies nothing. The policies' own settings for enforcement and store failures have no effect
    /// then. A [`Concurrency`](crate::Concurrency) policy is an error when the limiter is
    /// built.
    pub const fn shadow_all(mut self) -> Self {
        self.shadow_all = true;
        self
    }

    /// Sets how many callers of this process may wait for one bucket at a time
    /// ([`Limiter::acquire`](crate::Limiter::acquire)). Default: 65,536. While that many wait, a
    /// further caller that would have to wait is denied at once.
    ///
    /// Callers whose checks are in flight at the same time may exceed it.
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = Some(callers);
        self
    }

    /// Names the limiter in its [metrics](crate::Limiter::metrics). Default: `default`.
    ///
    /// The name has 1 to 64 printable ASCII characters. It need not be unique: the numbers of
    /// limiters and layers of one name are added up where they are exported together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets an observer of each check, after it was counted.
    /// Default: none. It runs in the path of the check.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }
}

impl LimiterBuilder {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let engine = Live::new(self.engine(None)?);
        engine.subscribe();
        Ok(Limiter { engine })
    }

    fn engine(&self, former: Option<&Engine>) -> Result<Engine, ConfigError> {
        let policies = self.policies.iter().map(|policy| {
            let compiled = self.compile(policy)?;
            policy.check_reads_nothing(&compiled.name)?;
            Ok(compiled)
        });
        let policies = policies.collect::<Result<_, ConfigError>>()?;
        self.build_engine(policies, false, former)
    }
}

impl Limiter {
    /// Checks other settings for this limiter and its clones. They have no effect until the result is
    /// [applied](Replacement::apply).
    ///
    /// The limiter keeps its store, whatever the builder has, and its numbers. A policy that keeps
    /// its name and its algorithm keeps what callers have used. If the builder has a control
    /// document, the limiter follows it from then on. Otherwise it follows the former one. Keep the
    /// name, because numbers are published under it.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn prepare(&self, builder: &LimiterBuilder) -> Result<Replacement, ConfigError> {
        let engine = builder.engine(Some(&self.engine.load()))?;
        Ok(self.engine.replacement(engine))
    }

    /// Returns whether another clone of this limiter is alive, in a service for example. For a
    /// registry of limiters, which may forget a limiter that is not used anywhere else.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }
}
