//! A named quota and its options.

mod check;
mod compiled;
mod overridden;

use std::time::Duration;

pub(crate) use self::{
    check::{cannot_lease, check_names, check_strikes, cost_of_penalty},
    compiled::Compiled,
    overridden::{check_override, check_overrides, override_conflict},
};
use crate::{
    ConfigError, OnStoreFailure, Quota, enforcement::Enforcement,
    middleware::readers::PolicyReaders,
};

/// A named quota that a [`Limiter`](crate::Limiter) or a
/// [`RateLimitLayer`](crate::RateLimitLayer) checks.
///
/// Clients read the **name** in headers, and it separates this policy's buckets from those of
/// others in a shared store. Processes, and routes of one process, that use one name and algorithm
/// on one Redis share the buckets. Give one name one quota: layers that disagree charge a request
/// twice, and the log reports it once.
///
/// A bare quota is a policy, too. Its name is derived from its numbers, as in
/// `"10-per-second-burst-20"`. **Equal bare quotas on one store are one
/// policy**: on two routes they share their buckets, and stacked they charge a
/// bucket twice. Name policies that share a store.
///
/// ```
/// use tower_throttle::{FixedWindow, Policy, TokenBucket, key};
///
/// #[derive(Clone)]
/// struct User { id: u64 } // inserted by your authentication
///
/// let burst = Policy::new("burst", TokenBucket::per_second(10).burst(20));
/// let day = Policy::new("day", FixedWindow::per_day(5_000)).cost(2);
/// // for a layer: its key, and the requests to which it applies
/// let writes = Policy::new("writes", TokenBucket::per_minute(30))
///     .key(key::extension(|user: &User| user.id).or(key::peer()))
///     .when(|head| head.method() != http::Method::GET);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Policy {
    name: Option<String>,
    quota: Result<Quota, ConfigError>,
    cost: Option<u64>,
    debt: Option<u64>,
    shared: bool,
    on_store_failure: Option<OnStoreFailure>,
    leases: bool,
    pub(crate) hold_for: Option<Duration>,
    strikes_on_denial: bool,
    enforcement: Enforcement,
    pub(crate) readers: PolicyReaders,
}

impl Policy {
    /// Creates a policy from a name and a quota. The name has 1 to 64 printable ASCII
    /// characters and is unique among the policies of a limiter or layer.
    ///
    /// The quota may be a [text](Quota#as-text):
    ///
    /// ```
    /// use tower_throttle::Policy;
    ///
    /// let policy = Policy::new("api", "10 per second, burst 20");
    /// ```
    pub fn new<Q>(name: impl Into<String>, quota: Q) -> Self
    where
        Q: TryInto<Quota>,
        ConfigError: From<Q::Error>,
    {
        Self {
            name: Some(name.into()),
            ..Self::unnamed(quota)
        }
    }

    fn unnamed<Q>(quota: Q) -> Self
    where
        Q: TryInto<Quota>,
        ConfigError: From<Q::Error>,
    {
        Self {
            name: None,
            quota: quota.try_into().map_err(ConfigError::from),
            cost: None,
            debt: None,
            shared: false,
            on_store_failure: None,
            leases: false,
            hold_for: None,
            strikes_on_denial: false,
            enforcement: Enforcement::ForAll,
            readers: PolicyReaders::default(),
        }
    }

    /// Replaces the quota, and keeps everything else: of a policy that was read from a file, for
    /// example.
    pub fn with_quota<Q>(mut self, quota: Q) -> Self
    where
        Q: TryInto<Quota>,
        ConfigError: From<Q::Error>,
    {
        self.quota = quota.try_into().map_err(ConfigError::from);
        self
    }

    /// Sets how many units each check takes. Default: 1. A cost of 0 checks without taking. On a
    /// [`Penalty`](crate::Penalty), which charges no units, it is a [`ConfigError`].
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    /// Sets how many units [`Limiter::debit`](crate::Limiter::debit) may charge beyond
    /// the capacity. The default is also the maximum: as many as the arithmetic holds
    /// exactly. Used units and debt together are at most:
    ///
    /// | quota | at most |
    /// |---|---|
    /// | [`TokenBucket`](crate::TokenBucket), [`LeakyBucket`](crate::LeakyBucket) | the refill of 104 days (2^53 ns) |
    /// | [`refill_at_once`](crate::TokenBucket::refill_at_once) | the refill of 285,000 years (2^53 ms), below 2^53 units |
    /// | [`FixedWindow`](crate::FixedWindow), [`without_refill`](crate::TokenBucket::without_refill) | below 2^53 units |
    /// | [`SlidingWindow`](crate::SlidingWindow) | 2^52 units divided by the window in ms |
    /// | [`SlidingLog`](crate::SlidingLog) | below 2^40 units |
    /// | [`Concurrency`](crate::Concurrency) | 0: permits are held |
    /// | [`Penalty`](crate::Penalty) | 0: a debit leaves it out |
    ///
    /// A caller in debt is denied until the debt is paid back, however long that takes. Set
    /// this if one debit must not lock a caller out for longer. With 0, a
    /// debit charges the units that are left. The debt of a `FixedWindow` ends with its window.
    ///
    /// With [`lease`](Self::lease) it is 0, and more is a [`ConfigError`]: a lease would let
    /// a debtor skip the wait.
    /// [`acquire`](crate::Limiter::acquire) and
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to) count a debt as part
    /// of the wait, and deny if it is too long.
    ///
    /// While the store fails, [`share_of`](OnStoreFailure::share_of) limits the debt in each
    /// process. The debt of a bucket may be the refill of the same time at the rate of its
    /// share. The debt of other quotas may be their share of the units.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let policy = Policy::new("tokens", FixedWindow::per_day(1_000)).max_debt(500);
    /// let limiter = Limiter::new(MemoryStore::new(), policy);
    /// let debit = limiter.debit("ann", 4_000).await?;
    /// assert_eq!((debit.charged(), debit.uncharged()), (1_500, 2_500));
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    pub const fn max_debt(mut self, units: u64) -> Self {
        self.debt = Some(units);
        self
    }

    /// Sets what this policy does while the store cannot decide. Default: the setting of its
    /// layer or limiter, which is [`OnStoreFailure::local`] by default.
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.on_store_failure = Some(choice);
        self
    }

    /// Lets each process lease units of a busy caller, and decide the next checks from them
    /// without a round trip to Redis. Default: Redis decides each check. Use it for keys that
    /// are checked thousands of times a second, far from their limit.
    ///
    /// A [`RedisStore`](crate::RedisStore) then leases units in the background: no more than
    /// the caller used in the last 100 ms, and at most an eighth of what its bucket has left.
    /// So leases are large far from the limit. A bucket that has less than 128 times the cost
    /// of a check left has none, and Redis decides every check. Only Redis denies.
    ///
    /// Units that are not used within 750 ms are refunded. After 150 ms without a check, all
    /// are. [`RedisStore::shutdown`](crate::RedisStore::shutdown) refunds the rest.
    ///
    /// **The danger** is a larger burst: units may be used up to a second after they were
    /// leased. In any span of time, a key may be admitted the units that its bucket grants, and in
    /// addition those that all processes held when the span began. For each process these are at most
    /// an eighth of the burst. For all processes together they are at most the refill of a second,
    /// as long as Redis answers within 100 ms and no process stalls. The long-run rate is never
    /// exceeded.
    ///
    /// Conversely, other processes are denied units that this process holds and may not use.
    /// If the process is killed, or a refund does not reach Redis, its units are lost: at most
    /// an eighth of the burst each time. In three cases leased units are admitted in addition to
    /// the bucket: after a [`credit`](crate::Limiter::credit) of more than was used, a reset by
    /// another process, or a loss of data.
    ///
    /// The source of such a decision is [`Source::Lease`](crate::Source::Lease). Its
    /// `remaining` and `reset_after` date from the last reply of Redis, less than a
    /// second ago. They count this process's own checks, but not what others took since.
    /// While Redis fails, leased units are used up.
    ///
    /// Only for a [`TokenBucket`](crate::TokenBucket) without [debts](Self::max_debt),
    /// in a layer without [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to):
    /// anything else is a [`ConfigError`]. A check of several policies goes to Redis as without a
    /// lease. Operations other than a plain check always go to Redis
    /// ([`peek`](crate::Limiter::peek), [`acquire`](crate::Limiter::acquire), ..). A
    /// [`MemoryStore`](crate::MemoryStore) ignores leases, because it always decides at once.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Limiter, Policy, TokenBucket};
    ///
    /// let everyone = Policy::new("everyone", TokenBucket::per_second(50_000))
    ///     .shared()
    ///     .lease();
    ///
    /// let window = Policy::new("window", FixedWindow::per_hour(50_000)).lease();
    /// let error = Limiter::builder().policy(window).build().unwrap_err();
    /// assert_eq!(error.code(), "cannot-lease");
    /// ```
    pub const fn lease(mut self) -> Self {
        self.leases = true;
        self
    }

    /// Lets requests hold units until their cost is known, and sets how long units are held at
    /// least. Default: units are charged when they are taken.
    ///
    /// [`Limiter::reserve`](crate::Limiter::reserve) and a layer with
    /// [`settle_by`](Self::settle_by) hold the estimated cost of a request, and settle it when the
    /// request has ended: its use is charged, and the rest is released. Held units are not counted in
    /// any caller's [`remaining`](crate::PolicyDecision::remaining), so the limit is never exceeded,
    /// in whatever order requests end.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// let tokens = Policy::new("tokens", FixedWindow::per_day(10_000))
    ///     .hold_for(Duration::from_secs(120));
    /// let limiter = Limiter::new(MemoryStore::new(), tokens);
    ///
    /// let first = limiter.reserve("ann", 4_000).await?;
    /// assert!(first.is_allowed());
    /// // While 4,000 units are held, 8,000 more do not fit.
    /// assert!(!limiter.reserve("ann", 8_000).await?.is_allowed());
    /// first.settle(1_000).await?;
    /// assert!(limiter.reserve("ann", 8_000).await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// If a request lasts longer, its process extends the hold. If the process dies, or the reply of
    /// the store is lost, the hold lapses after one to two lifetimes, and is charged in full, once.
    ///
    /// All processes that share the policy's buckets must set it, or none. Held units are stored in
    /// the caller's bucket. 1 second to 1 day; anything else is a [`ConfigError`]. The following
    /// policies are errors, too: one that holds and [leases](Self::lease), one whose requests
    /// [wait in a queue](crate::LeakyBucket::queue), and one with a
    /// [`Concurrency`](crate::Concurrency) quota, which always holds its units.
    pub const fn hold_for(mut self, lifetime: Duration) -> Self {
        self.hold_for = Some(lifetime);
        self
    }

    /// Makes each request that another policy of the layer or limiter denies a strike, in the same
    /// script call. Only for a [`Penalty`](crate::Penalty). Default: denials are not strikes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, Penalty, Policy, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let stubborn = Penalty::after(3).lasting(Duration::from_secs(900));
    /// let limiter = Limiter::builder()
    ///     .store(MemoryStore::new())
    ///     .policy(Policy::new("api", TokenBucket::per_minute(1)))
    ///     .policy(Policy::new("stubborn", stubborn).strike_on_denial())
    ///     .build()?;
    /// assert!(limiter.check("ann").await?.is_allowed());
    /// for _ in 0..3 {
    ///     assert!(!limiter.check("ann").await?.is_allowed());
    /// }
    /// let banned = limiter.check("ann").await?;
    /// assert!(banned.denied_by().any(|policy| policy.name() == "stubborn"));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// **Where a denial comes from the [denial cache](crate::RedisStoreBuilder::denial_cache_ttl)**,
    /// the process adds the strikes up, and sends them with the next check of that caller that goes
    /// to Redis. That is the next one as soon as the strikes known here are enough for a ban, and
    /// otherwise the first one after at most that time, a second by default. Strikes may be counted
    /// that much later. They are lost if the caller sends nothing for twice that time, if its denial
    /// is evicted (16,384 are cached), or if the process or that call fails. So a caller may get away
    /// with one second of denials in each process.
    ///
    /// These denials are not strikes: one by the penalty itself, one of a
    /// [`take_up_to`](crate::Limiter::take_up_to), and one for a missing key or a failing store.
    /// Callers that [may wait](crate::Limiter::acquire), callers for which the policy is not
    /// [enforced](Self::enforce_for_percent), and new callers on a full
    /// [`MemoryStore`](crate::MemoryStore) get no strikes. It is a [`ConfigError`] on another quota,
    /// on a [shadow policy](Self::shadow), in a layer with
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to), and if no other policy can deny.
    pub const fn strike_on_denial(mut self) -> Self {
        self.strikes_on_denial = true;
        self
    }

    /// Uses one bucket for all callers together. Default: a bucket for each caller.
    ///
    /// A policy with a [key](Self::key), too, is an error when the layer is built.
    ///
    /// ```
    /// use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let everyone = Policy::new("everyone", TokenBucket::per_second(5_000)).shared();
    /// let writes = everyone.clone().when(|head| head.method() != http::Method::GET);
    /// assert!(RateLimitLayer::builder().policy(writes).build().is_ok());
    ///
    /// let keyed = everyone.key(key::header("x-api-key"));
    /// let error = RateLimitLayer::builder().policy(keyed).build().unwrap_err();
    /// assert_eq!(error.code(), "shared-and-keyed");
    /// ```
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Makes this a shadow policy: it is checked and counted, and never denies. Default: a
    /// policy is enforced.
    ///
    /// Use it to learn which requests a limit would deny before it denies them. Each shadow policy
    /// charges a request to its own buckets if it would admit it, whatever other policies decide.
    /// A denial is an event at `DEBUG` with `shadow=true`, and is counted as
    /// `shadow_denied` in the [metrics](crate::metrics).
    /// [`Decision::shadow_denied`](crate::Decision::shadow_denied) reports it, so a handler may
    /// treat it as a soft limit.
    ///
    /// **A request never waits for it.** On Redis, the shadow policies of a request share the one
    /// call that its enforced policies need. If all are shadow policies, the request continues at
    /// once. If the store fails, the policy counts `unknown`, and keeps no buckets in this
    /// process. If the key is missing, it counts `key_missing`. It does not wait for a
    /// [queue](crate::LeakyBucket::queue) or for
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to).
    ///
    /// In a limiter, the same is true of [`check`](crate::Limiter::check) and
    /// [`take_up_to`](crate::Limiter::take_up_to). [`acquire`](crate::Limiter::acquire) checks it
    /// once, when it is called. `peek`, `debit` and `credit` apply to it as to an enforced policy and
    /// wait for the store, but a failure of the store is not an error.
    ///
    /// **The danger**: its buckets depend on its name, like those of any policy. If it has the name of
    /// an enforced policy of another layer on the same store, it takes that policy's units.
    ///
    /// To enforce it later, remove this line: its buckets stay. Setting
    /// [`on_store_failure`](Self::on_store_failure) to anything except `Allow` is a [`ConfigError`].
    /// A [`Concurrency`](crate::Concurrency) quota is, too, because admitted requests hold its units.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .store(MemoryStore::new())
    ///     .policy(Policy::new("v1", FixedWindow::per_hour(100)))
    ///     .policy(Policy::new("v2", FixedWindow::per_hour(1)).shadow())
    ///     .build()?;
    /// assert_eq!(limiter.check_now("ann")?.shadow_denied().count(), 0);
    /// let decision = limiter.check_now("ann")?;
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.shadow_denied().map(|policy| policy.name()).collect::<Vec<_>>(), ["v2"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn shadow(mut self) -> Self {
        self.enforcement = Enforcement::ForNone;
        self
    }

    /// Enforces the policy for this percent of its callers, 1 to 100. For the others it is a
    /// [shadow policy](Self::shadow).
    ///
    /// A hash of the policy's name and the key chooses, so a caller stays on its side in every
    /// process. A larger percentage later includes the callers of this one. All requests that lack
    /// the key count as one caller.
    ///
    /// **The danger**: a caller that can change its key can look for one on the other side. 0 and
    /// more than 100 are a [`ConfigError`]. A [shared](Self::shared) policy is, too, because it has
    /// one key for all.
    ///
    /// ```
    /// use tower_throttle::{Policy, TokenBucket};
    ///
    /// let tenth = Policy::new("burst", TokenBucket::per_second(5)).enforce_for_percent(10);
    /// ```
    pub const fn enforce_for_percent(mut self, percent: u8) -> Self {
        self.enforcement = Enforcement::For(percent);
        self
    }
}

/// A bare quota is a policy without a name: a limit of one policy needs none.
impl<Q> From<Q> for Policy
where
    Q: TryInto<Quota>,
    ConfigError: From<Q::Error>,
{
    fn from(quota: Q) -> Self {
        Self::unnamed(quota)
    }
}
