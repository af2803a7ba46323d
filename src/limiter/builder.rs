//! [`LimiterBuilder`].

use crate::control::Control;
#[cfg(doc)]
use crate::{Decision, Limiter};
use crate::{Lists, OnStoreFailure, Policy, engine::EngineBuilder, metrics::Observe, store::Store};
use std::sync::Arc;

/// Builds a [`Limiter`](crate::Limiter) of several policies, or with settings of its own.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, OnStoreFailure, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .name("mail")
///     .store(MemoryStore::new())
///     .policy(Policy::new("per-user", TokenBucket::per_minute(5)))
///     .policy(Policy::new("everyone", FixedWindow::per_day(1_000)).shared())
///     .on_store_failure(OnStoreFailure::Deny)
///     .build()?;
/// assert!(limiter.check_now("ann")?.is_allowed());
///
/// let error = Limiter::builder().build().unwrap_err();
/// assert_eq!(error.code(), "no-policies");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimiterBuilder {
    pub(super) engine: EngineBuilder,
}

impl LimiterBuilder {
    /// Sets where buckets are kept. Default: a [`MemoryStore`](crate::MemoryStore) of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.engine.store = Some(Arc::new(store));
        self
    }

    /// Adds a policy, or a bare quota. A check is admitted if all policies admit it.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.engine.policies.push(policy.into());
        self
    }

    /// Sets which keys are not limited and which are denied, whatever the policies decide. Default:
    /// none.
    ///
    /// The limiter keeps a clone: [`Lists::replace`] takes effect with the next check. Listed
    /// addresses have no effect here, because a limiter has no request: see [`Lists::find_ip`].
    ///
    /// A listed key is decided without a store: [`Decision::source`](crate::Decision::source) is
    /// [`Source::List`](crate::Source::List). Checks of a key on the allow list are admitted, and never
    /// charged, not even by [`debit`](crate::Limiter::debit). Checks of a key on the deny list are
    /// denied; earlier use of that key can still be debited and credited.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Lists, Source, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(TokenBucket::per_minute(5))
    ///     .lists(Lists::new().deny_keys(["mallory"])?)
    ///     .build()?;
    /// let decision = limiter.check_now("mallory")?;
    /// assert_eq!((decision.is_allowed(), decision.source()), (false, Source::List));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lists(mut self, lists: Lists) -> Self {
        self.engine.lists = Some(lists);
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
        self.engine.control = Some(control);
        self
    }

    /// Sets what happens while the store cannot decide, for policies
    /// [without a setting of their own](Policy::on_store_failure). Default:
    /// [`OnStoreFailure::local`].
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.engine.on_store_failure = choice;
        self
    }

    /// Makes all policies [shadow policies](Policy::shadow): the limiter checks and counts, and
    /// denies nothing. The policies' own settings for enforcement and store failures have no effect
    /// then. A [`Concurrency`](crate::Concurrency) policy is an error when the limiter is
    /// built.
    pub const fn shadow_all(mut self) -> Self {
        self.engine.shadow_all = true;
        self
    }

    /// Sets how many callers of this process may wait for one bucket at a time
    /// ([`Limiter::acquire`](crate::Limiter::acquire)). Default: 65,536. While that many wait, a
    /// further caller that would have to wait is denied at once.
    ///
    /// Callers whose checks are in flight at the same time may exceed it.
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.engine.max_waiting = Some(callers);
        self
    }

    /// Names the limiter in its [metrics](crate::Limiter::metrics). Default: `default`.
    ///
    /// The name has 1 to 64 printable ASCII characters. It need not be unique: the numbers of
    /// limiters and layers of one name are added up where they are exported together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.engine.name = Some(name.into());
        self
    }

    /// Sets an observer of each check, after it was counted, and of each change of the store.
    /// Default: none. It runs in the path of the check.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.engine.observer = Some(Arc::new(observer));
        self
    }
}
