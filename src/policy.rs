//! A named quota.

use std::{borrow::Cow, time::Duration};
#[cfg(feature = "control")]
use std::{collections::BTreeSet, sync::Arc};

#[cfg(feature = "http")]
use crate::middleware::readers::PolicyReaders;
#[cfg(feature = "control")]
use crate::overlay::Callers;
use crate::{
    ConfigError, Key, OnStoreFailure, Quota,
    charge::{Charge, Demand},
    enforcement::{Enforcement, Percent},
    overlay::{Mode, Overlay},
    policy_name::Name,
    quota::hold::HoldParams,
    util::interned::Interned,
};

/// A named quota: what a [`Limiter`](crate::Limiter) or a
/// [`RateLimitLayer`](crate::RateLimitLayer) checks.
///
/// The **name** is what clients read in headers and what separates this
/// policy's buckets from those of others in a shared store. Processes that use
/// one name and algorithm on one Redis share the buckets; so do two routes of one process.
/// Give one name one quota: layers that disagree charge a request twice, and one line in the
/// log says so.
///
/// A bare quota is a policy too. Its name is derived from its numbers, as in
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
/// // for a layer: who is asking, and when it applies
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
    #[cfg(feature = "http")]
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
            #[cfg(feature = "http")]
            readers: PolicyReaders::default(),
        }
    }

    /// Replaces the quota, and keeps all else: of a policy that was read from a file, for example.
    pub fn with_quota<Q>(mut self, quota: Q) -> Self
    where
        Q: TryInto<Quota>,
        ConfigError: From<Q::Error>,
    {
        self.quota = quota.try_into().map_err(ConfigError::from);
        self
    }

    /// Makes it a policy of a limiter that looks at single callers: it reads nothing from requests,
    /// and does nothing that depends on other policies or callers.
    #[cfg(feature = "config")]
    pub(crate) fn for_lookup(mut self) -> Self {
        let is_penalty = self
            .quota
            .as_ref()
            .is_ok_and(|quota| quota.penalty().is_some());
        if is_penalty {
            // It was there for a settler.
            self.hold_for = None;
        }
        self.readers = PolicyReaders::default();
        self.strikes_on_denial = false;
        self.leases = false;
        self.enforcement = Enforcement::ForAll;
        self.on_store_failure = None;
        self
    }

    /// Sets how many units each check takes. Default: 1. A cost of 0 asks without taking. On a
    /// [`Penalty`](crate::Penalty), which takes none, it is a [`ConfigError`].
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
    /// | [`TokenBucket`](crate::TokenBucket), [`LeakyBucket`](crate::LeakyBucket) | what flows in within 104 days (2^53 ns) |
    /// | [`refill_at_once`](crate::TokenBucket::refill_at_once) | what flows in within 285,000 years (2^53 ms), below 2^53 units |
    /// | [`FixedWindow`](crate::FixedWindow), [`without_refill`](crate::TokenBucket::without_refill) | below 2^53 units |
    /// | [`SlidingWindow`](crate::SlidingWindow) | 2^52 units divided by the window in ms |
    /// | [`SlidingLog`](crate::SlidingLog) | below 2^40 units |
    /// | [`Concurrency`](crate::Concurrency) | 0: permits are held |
    /// | [`Penalty`](crate::Penalty) | 0: a debit leaves it out |
    ///
    /// A caller in debt is denied until the debt is paid back, however long that takes. Set
    /// this if one debit must not lock a caller out for longer. With 0, a
    /// debit charges what is left. The debt of a `FixedWindow` ends with its window.
    ///
    /// With [`lease`](Self::lease) it is 0, and more is a [`ConfigError`]: a lease would let
    /// a debtor skip the wait.
    /// [`acquire`](crate::Limiter::acquire) and
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to) count a debt as part
    /// of the wait, and deny if it is too long.
    ///
    /// While the store fails, [`share_of`](OnStoreFailure::share_of) limits the debt in each
    /// process. A bucket may owe as much as flows in within the same time at the rate of its
    /// share. Other quotas may owe their share of the units.
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
    /// leased. In any span of time a key may be admitted what its bucket grants, and in addition
    /// what all processes held when the span began. For each process that is at most an eighth
    /// of the burst. In all it is no more than flows in within a second, as long as Redis answers
    /// within 100 ms and no process stalls. The long-run rate is never exceeded.
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
    /// anything else is a [`ConfigError`]. A check of several policies goes to Redis as
    /// without a lease, and so do operations other than a plain check
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

    /// Lets requests hold units until it is known what they cost, and sets for how long at least.
    /// Default: units are charged when they are taken.
    ///
    /// [`Limiter::reserve`](crate::Limiter::reserve) and a layer with
    /// [`settle_by`](Self::settle_by) hold the cost of a request, and settle it when the request
    /// has ended: what it used is charged, and the rest is released. What is held is in nobody's
    /// [`remaining`](crate::PolicyDecision::remaining), so the limit is never exceeded, in whatever
    /// order requests end.
    ///
    /// What is held for a request that lasts longer is renewed. If its process dies, or the answer of
    /// the store is lost, the hold lapses after one to two such lifetimes, and is charged in full,
    /// once.
    ///
    /// All processes that share the policy's buckets must set it, or none. It needs one more key in
    /// the store for each caller of which something is held. 1 second to 1 day; anything else is a
    /// [`ConfigError`]. So is a policy that holds and [leases](Self::lease), one whose requests
    /// [wait in a queue](crate::LeakyBucket::queue), and one with a
    /// [`Concurrency`](crate::Concurrency) quota, which holds units by itself.
    pub const fn hold_for(mut self, lifetime: Duration) -> Self {
        self.hold_for = Some(lifetime);
        self
    }

    /// Returns how long units are held, or why they cannot be.
    fn checked_hold(&self, quota: &Quota) -> Result<Option<Interned<Quota>>, ConfigError> {
        const LONGEST: Duration = Duration::from_secs(86_400);

        let Some(lifetime) = self.hold_for else {
            return Ok(None);
        };
        #[cfg(feature = "http")]
        if quota.penalty().is_some() && self.readers.settles() {
            // What it is settled as are strikes, of which none are held.
            return Ok(None);
        }
        let conflict = if self.leases {
            "`lease()`, because leased units are charged already"
        } else if quota.penalty().is_some() {
            "a Penalty, because it takes no units"
        } else if quota.paces() {
            "a LeakyBucket with a queue, because its units are places in time"
        } else if quota.is_concurrency() {
            "a Concurrency quota, because its units are held until the response has ended"
        } else if !(Duration::from_secs(1)..=LONGEST).contains(&lifetime) {
            return Err(ConfigError::HoldOutOfRange { lifetime });
        } else {
            return Ok(Some(HoldParams::of(lifetime, quota).intern()));
        };
        Err(ConfigError::CannotHold { conflict })
    }

    /// Makes each request that another policy of the layer or limiter denies a strike, in the same
    /// script call. Only for a [`Penalty`](crate::Penalty). Default: denials are no strikes.
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
    /// No strikes are a denial by the penalty itself, one that a
    /// [`take_up_to`](crate::Limiter::take_up_to) gets, and one for a missing key or a store that
    /// fails. Nor are there any for a caller that [may wait](crate::Limiter::acquire), for one that
    /// is not [enforced](Self::enforce_for), and, on a full [`MemoryStore`](crate::MemoryStore), for
    /// new callers. It is a [`ConfigError`] on another quota, on a [shadow policy](Self::shadow), in
    /// a layer with [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to), and if no other policy
    /// can deny.
    pub const fn strike_on_denial(mut self) -> Self {
        self.strikes_on_denial = true;
        self
    }

    /// Returns an error if denials cannot be strikes.
    fn check_own_strikes(&self, quota: &Quota) -> Result<(), ConfigError> {
        let conflict = if !self.strikes_on_denial {
            return Ok(());
        } else if quota.penalty().is_none() {
            "a quota that is no Penalty"
        } else if self.enforcement == Enforcement::ForNone {
            SHADOW_STRIKES
        } else {
            return Ok(());
        };
        Err(ConfigError::CannotStrike { conflict })
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
    /// Use it to learn what a limit would deny before it denies. Each request is charged to the
    /// policy's own buckets if they have room, whatever the other policies say, and each shadow
    /// policy by itself. A denial is an event at `DEBUG` with `shadow=true`, and is counted as
    /// `shadow_denied` in the [metrics](crate::metrics).
    /// [`Decision::shadow_denied`](crate::Decision::shadow_denied) reports it, so a handler may
    /// treat it as a soft limit.
    ///
    /// **A request never waits for it.** On Redis, the shadow policies of a request share the one
    /// call that its enforced policies need. If all are shadow policies, the request goes on at
    /// once. If the store fails, the policy counts `unknown`, and keeps no buckets in this
    /// process. If the key is missing, it counts `key_missing`. It does not wait for a
    /// [queue](crate::LeakyBucket::queue) or for
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to).
    ///
    /// [`check`](crate::Limiter::check) and [`take_up_to`](crate::Limiter::take_up_to) of a
    /// limiter treat it so, and [`acquire`](crate::Limiter::acquire) checks it once, when it is
    /// called. `peek`, `debit` and `credit` apply to it as to an enforced policy and wait for the
    /// store, but its failure is no error.
    ///
    /// **The danger**: its buckets are those of its name, as of any policy. With the name of an
    /// enforced policy of another layer on the same store, it takes that one's units.
    ///
    /// Enforce it later by dropping this line: its buckets stay. Setting
    /// [`on_store_failure`](Self::on_store_failure) to anything but `Allow` is a [`ConfigError`],
    /// and so is a [`Concurrency`](crate::Concurrency) quota, whose units are held by the requests
    /// that were let in.
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

    /// Enforces the policy for a share of its callers. For the others it is a
    /// [shadow policy](Self::shadow).
    ///
    /// A hash of the policy's name and the key chooses, so a caller stays on its side, in each
    /// process. A larger share later keeps the callers of this one. All requests that lack the
    /// key count as one caller.
    ///
    /// **The danger**: a caller that can change its key can look for one on the other side. A share
    /// of 0 or above 100 is a [`ConfigError`], and so is a [shared](Self::shared) policy, as it
    /// has one key for all.
    ///
    /// ```
    /// use tower_throttle::{Percent, Policy, TokenBucket};
    ///
    /// let tenth = Policy::new("burst", TokenBucket::per_second(5)).enforce_for(Percent::of_keys(10));
    /// ```
    pub const fn enforce_for(mut self, share: Percent) -> Self {
        self.enforcement = Enforcement::For(share);
        self
    }

    /// Returns for which callers it is enforced, or why it cannot be so.
    fn checked_enforcement(&self, quota: &Quota) -> Result<Enforcement, ConfigError> {
        if let Enforcement::For(Percent(percent)) = self.enforcement {
            if !(1..=100).contains(&percent) {
                return Err(ConfigError::PercentOutOfRange { percent });
            }
            if self.shared {
                return Err(ConfigError::SharedPercent);
            }
        }
        let is_allowed = matches!(self.on_store_failure, None | Some(OnStoreFailure::Allow));
        if self.enforcement == Enforcement::ForNone && !is_allowed {
            let conflict =
                "`on_store_failure(..)`, because it lets requests pass while the store fails";
            return Err(ConfigError::CannotShadow { conflict });
        }
        let enforcement = match self.enforcement {
            Enforcement::For(Percent(100)) => Enforcement::ForAll,
            enforcement => enforcement,
        };
        match enforcement.may_be_shadow() && quota.is_concurrency() {
            true => Err(cannot_shadow_permits()),
            false => Ok(enforcement),
        }
    }

    /// Reports every configuration error that can be known before the first request.
    /// `on_store_failure` applies if the policy has no setting of its own.
    pub(crate) fn compile(
        &self,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        let quota = self.quota.clone();
        let quota = quota.map_err(|error| match &self.name {
            Some(name) => error.in_policy(name),
            None => error,
        })?;
        let name = self.name.clone().unwrap_or_else(|| quota.to_name());
        let name = Name::new(&name).ok_or(ConfigError::PolicyName { name })?;
        if quota.penalty().is_some() && self.cost.is_some() {
            return Err(ConfigError::CostOfPenalty { method: "cost" }.in_policy(&name.text));
        }
        let strikes = self.check_own_strikes(&quota);
        strikes.map_err(|error| error.in_policy(&name.text))?;
        let (cost, capacity) = (self.cost.unwrap_or(1), quota.capacity());
        // A capacity of 0 is deliberate: it denies everything.
        if cost > capacity && capacity > 0 {
            return Err(ConfigError::CostAboveCapacity { cost, capacity }.in_policy(&name.text));
        }
        let max = quota.most_debt();
        let debt = self.debt.unwrap_or(max);
        if debt > max {
            return Err(ConfigError::DebtTooLarge { debt, max }.in_policy(&name.text));
        }
        if self.leases {
            let conflict = match (quota.leases(), self.debt) {
                (false, _) => Some("a quota that is no TokenBucket"),
                (true, Some(1..)) => Some("`max_debt(..)`"),
                (true, _) => None,
            };
            if let Some(conflict) = conflict {
                return Err(ConfigError::CannotLease { conflict }.in_policy(&name.text));
            }
        }
        let hold = self.checked_hold(&quota);
        let hold = hold.map_err(|error| error.in_policy(&name.text))?;
        let enforcement = self.checked_enforcement(&quota);
        let enforcement = enforcement.map_err(|error| error.in_policy(&name.text))?;
        let on_store_failure = self.on_store_failure.unwrap_or(on_store_failure);
        if on_store_failure == OnStoreFailure::share_of(0) {
            let setting = "share_of";
            return Err(ConfigError::Zero { setting }.in_policy(&name.text));
        }
        Ok(Compiled {
            name,
            demand: Demand {
                strikes: self.strikes_on_denial.then_some(0),
                ..Demand::of_request(quota.intern(), cost)
            },
            // A lease would let a debtor skip the wait.
            debt: if self.leases { 0 } else { debt },
            shared: self.shared,
            on_store_failure,
            leases: self.leases,
            hold,
            enforcement,
            #[cfg(feature = "control")]
            overrides: None,
        })
    }

    /// Checks a policy of a [`Limiter`](crate::Limiter), which has no requests to read.
    pub(crate) fn compile_without_requests(
        &self,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        let compiled = self.compile(on_store_failure)?;
        #[cfg(feature = "http")]
        if let Some(method) = self.readers.method() {
            let error = ConfigError::NoRequestToRead { method };
            return Err(error.in_policy(&compiled.name.text));
        }
        Ok(compiled)
    }
}

macro_rules! bare_quotas {
    ($($quota:ty),+) => {
        $(
            impl From<$quota> for Policy {
                /// Creates a policy that is named after the numbers of the quota.
                fn from(quota: $quota) -> Self {
                    Self::unnamed(quota)
                }
            }
        )+
    };
}
bare_quotas!(
    Quota,
    crate::TokenBucket,
    crate::LeakyBucket,
    crate::FixedWindow,
    crate::SlidingWindow,
    crate::SlidingLog,
    crate::Concurrency,
    crate::Penalty
);

fn cannot_shadow_permits() -> ConfigError {
    let conflict = "a Concurrency quota, because its units are held by requests that were let in";
    ConfigError::CannotShadow { conflict }
}

const SHADOW_STRIKES: &str = "a shadow policy, which does not know what other policies decide";

/// A checked policy.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) name: Name,
    /// The demand, unless the request chooses another.
    pub(crate) demand: Demand,
    /// The most units that may be owed.
    pub(crate) debt: u64,
    pub(crate) shared: bool,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) leases: bool,
    /// The quota of the hold beside each bucket; `None` if units are charged when they are taken.
    pub(crate) hold: Option<Interned<Quota>>,
    pub(crate) enforcement: Enforcement,
    /// What a control document gives some of the callers, if it names any.
    #[cfg(feature = "control")]
    pub(crate) overrides: Option<Arc<Callers>>,
}

impl Compiled {
    /// Makes it a shadow policy, whatever it was.
    ///
    /// # Errors
    ///
    /// Its quota cannot be shadowed.
    pub(crate) fn into_shadow(self) -> Result<Self, ConfigError> {
        if self.demand.quota.is_concurrency() {
            return Err(cannot_shadow_permits().in_policy(&self.name.text));
        }
        if self.demand.strikes.is_some() {
            let conflict = SHADOW_STRIKES;
            return Err(ConfigError::CannotStrike { conflict }.in_policy(&self.name.text));
        }
        Ok(Self {
            enforcement: Enforcement::ForNone,
            ..self
        })
    }

    /// Applies what a control document says of the policy, but not whether it is off. What the
    /// policy cannot take is left out, and is returned.
    pub(crate) fn with_overlay(self, overlay: &Overlay) -> (Self, Vec<ConfigError>) {
        let mut not_taken = Vec::new();
        let policy = match overlay.mode(&self.name.text) {
            Some(Mode::Enforce) => Self {
                enforcement: Enforcement::ForAll,
                ..self
            },
            Some(Mode::Shadow) => self.clone().into_shadow().unwrap_or_else(|error| {
                not_taken.push(error);
                self
            }),
            Some(Mode::Off) | None => self,
        };
        #[cfg(feature = "control")]
        let policy = policy.with_callers(overlay, &mut not_taken);
        (policy, not_taken)
    }

    #[cfg(feature = "control")]
    fn with_callers(mut self, overlay: &Overlay, not_taken: &mut Vec<ConfigError>) -> Self {
        let Some(callers) = overlay.callers(&self.name.text) else {
            return self;
        };
        let mut callers = Arc::clone(callers);
        let conflict = |quota: &Option<Interned<Quota>>| {
            let quota = quota.as_deref()?;
            cannot_override(&self.demand.quota, quota)
        };
        let conflicts = callers.values().filter_map(|given| conflict(&given.quota));
        // The same for each caller, mostly.
        let conflicts: BTreeSet<&str> = conflicts.collect();
        if !conflicts.is_empty() {
            let callers = Arc::make_mut(&mut callers).values_mut();
            for given in callers.filter(|given| conflict(&given.quota).is_some()) {
                given.quota = None;
            }
        }
        not_taken.extend(
            conflicts.into_iter().map(|conflict| {
                ConfigError::CannotOverride { conflict }.in_policy(&self.name.text)
            }),
        );
        self.overrides = Some(callers);
        self
    }

    /// Returns whether a control document gives callers something else.
    #[inline]
    pub(crate) fn has_overrides(&self) -> bool {
        #[cfg(feature = "control")]
        return self.overrides.is_some();
        #[cfg(not(feature = "control"))]
        false
    }

    /// Returns whether the policy is enforced for a caller. If not, it is a shadow policy.
    #[inline]
    pub(crate) fn is_enforced_for(&self, key: &Key) -> bool {
        self.enforcement.includes(self.name.hash, key.as_bytes())
    }

    /// Creates the charge that comes before a caller's bucket, if the policy holds: of the cost,
    /// `units` are held, and the rest is charged.
    #[inline]
    pub(crate) fn hold_before<'a>(&self, bucket: &Charge<'a>, units: u64) -> Option<Charge<'a>> {
        // A tier may hold permits or places in a queue, although the policy's own does not.
        let hold = self
            .hold
            .as_ref()
            .filter(|_| bucket.demand.quota.may_hold())?;
        let hold = match bucket.demand.quota == self.demand.quota {
            true => hold.clone(),
            false => HoldParams::beside(hold, &bucket.demand.quota),
        };
        Some(Charge {
            policy: self.name.clone(),
            key: bucket.key.clone(),
            demand: Cow::Owned(Demand::new(hold, units)),
            on_store_failure: self.on_store_failure,
            leases: false,
        })
    }

    /// Creates a charge to a caller's bucket.
    #[inline]
    pub(crate) fn charge<'a>(&self, key: Cow<'a, Key>, demand: Cow<'a, Demand>) -> Charge<'a> {
        Charge {
            policy: self.name.clone(),
            key,
            demand,
            on_store_failure: self.on_store_failure,
            leases: self.leases,
        }
    }
}

/// Returns why a caller of a policy with one quota cannot be given the other.
#[cfg(feature = "control")]
pub(crate) fn cannot_override(own: &Quota, other: &Quota) -> Option<&'static str> {
    if own.penalty().is_some() != other.penalty().is_some() {
        Some("a Penalty and a quota that grants units, because one counts strikes and not requests")
    } else if own.is_concurrency() != other.is_concurrency() {
        Some("a Concurrency quota and another, because its units are held and not used up")
    } else if other.paces() && !own.paces() {
        Some("a LeakyBucket with a queue on a policy without one, because its requests wait")
    } else {
        None
    }
}

/// Returns an error if denials are to be strikes, and there can be none. `waits`: whether denied
/// callers wait.
pub(crate) fn check_strikes<'a>(
    policies: &(impl Iterator<Item = &'a Compiled> + Clone),
    waits: bool,
) -> Result<(), ConfigError> {
    let striking = policies
        .clone()
        .find(|policy| policy.demand.strikes.is_some());
    let Some(striking) = striking else {
        return Ok(());
    };
    let can_deny =
        |other: &Compiled| other.name != striking.name && other.enforcement != Enforcement::ForNone;
    let conflict = if waits {
        "`wait_up_to(..)`, because a caller that waits is not denied yet"
    } else if !policies.clone().any(can_deny) {
        "being the only policy, because the denials of others are the strikes"
    } else {
        return Ok(());
    };
    Err(ConfigError::CannotStrike { conflict }.in_policy(&striking.name.text))
}

/// Returns an error if there is no policy, or if two have one name.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a Name>,
) -> Result<(), ConfigError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(&*name.text) {
            return Err(ConfigError::DuplicatePolicy {
                name: name.text.to_string(),
            });
        }
    }
    if seen.is_empty() {
        return Err(ConfigError::NoPolicies);
    }
    Ok(())
}
