//! A named quota.

use std::borrow::Cow;

#[cfg(feature = "http")]
use crate::middleware::readers::Readers;
use crate::{
    ConfigError, Key, OnStoreFailure, Quota,
    charge::{Charge, Demand},
    policy_name::Name,
};

/// A named quota: what a [`Limiter`](crate::Limiter) or a
/// [`RateLimitLayer`](crate::RateLimitLayer) checks.
///
/// The **name** is what clients read in headers and what separates this
/// policy's buckets from those of others in a shared store. Processes that use
/// one name on one Redis share the buckets; so do two routes of one process. Give one
/// name one quota: layers that disagree charge a request twice, and one line in the log
/// says so.
///
/// A bare quota is a policy too. Its name says the quota, as in
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
    cost: u64,
    debt: Option<u64>,
    shared: bool,
    on_store_failure: Option<OnStoreFailure>,
    leases: bool,
    #[cfg(feature = "http")]
    pub(crate) readers: Readers,
}

impl Policy {
    /// A quota under a name: 1 to 64 printable ASCII characters, unique among
    /// the policies of a limiter or layer.
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
            cost: 1,
            debt: None,
            shared: false,
            on_store_failure: None,
            leases: false,
            #[cfg(feature = "http")]
            readers: Readers::default(),
        }
    }

    /// How many units each check takes. Default: 1. A cost of 0 asks without taking.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// How many units [`Limiter::debit`](crate::Limiter::debit) may charge beyond
    /// the capacity. Default, and most: as many as the arithmetic holds exactly.
    /// That is, with all that is used:
    ///
    /// | quota | at most |
    /// |---|---|
    /// | [`TokenBucket`](crate::TokenBucket), [`LeakyBucket`](crate::LeakyBucket) | what flows in within 104 days (2^53 ns) |
    /// | [`refill_at_once`](crate::TokenBucket::refill_at_once) | what flows in within 285,000 years (2^53 ms), below 2^53 units |
    /// | [`FixedWindow`](crate::FixedWindow), [`without_refill`](crate::TokenBucket::without_refill) | below 2^53 units |
    /// | [`SlidingWindow`](crate::SlidingWindow) | 2^52 units divided by the window in ms |
    /// | [`SlidingLog`](crate::SlidingLog) | below 2^40 units |
    /// | [`Concurrency`](crate::Concurrency) | 0: permits are held |
    ///
    /// A caller in debt is denied until it is paid back, however long that takes:
    /// set this where one debit must not lock a caller out for longer. With 0 a
    /// debit charges what is left. The debt of a `FixedWindow` ends with its window.
    ///
    /// With [`lease`](Self::lease) it is 0, and
    /// more is a [`ConfigError`]: a process that holds units need not wait.
    /// [`acquire`](crate::Limiter::acquire) and
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to) count a debt as part
    /// of the wait, and deny where it is too long. While the store fails, each
    /// process with [`share_of`](OnStoreFailure::share_of) may be owed for as long a
    /// time by a bucket, and its part of the units by the others.
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

    /// What becomes of this policy while the store cannot decide. Default: what
    /// its layer or limiter says, which is [`OnStoreFailure::local`] by default.
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.on_store_failure = Some(choice);
        self
    }

    /// Lets each process pay in advance for units of a caller who asks often, and
    /// decide on its next checks without a trip to Redis. Default: each check is
    /// decided by Redis. For keys that are asked for thousands of times a second,
    /// far from their limit.
    ///
    /// A [`RedisStore`](crate::RedisStore) then takes units in portions, in the
    /// background: no more than the caller used in the last 100 ms, and at most an
    /// eighth of what its bucket has left. So far from the limit portions are
    /// large; near it, and in a bucket of fewer than 128 units, there is none and
    /// every check is Redis's. Only Redis refuses. Units that are not used within
    /// 750 ms, or while nobody asks for 150 ms, go back.
    /// [`RedisStore::shutdown`](crate::RedisStore::shutdown) gives back the rest.
    ///
    /// **The danger** is a larger burst: units may be used up to a second after
    /// they were paid for. In any time a key may be admitted, beyond what its
    /// bucket grants, what all processes held when it began: together at most an
    /// eighth of the burst for each process, and no more than flows in within a
    /// second (as long as Redis answers within 100 ms and no process stands still).
    /// The long-run rate is never exceeded. The other way round, others are refused units that this
    /// process holds and may not use; and where the process is killed or Redis does
    /// not hear of it, what it held is lost: at most an eighth of the burst each time.
    /// A [`credit`](crate::Limiter::credit) of more than was used, a reset by another
    /// process, or lost data leave what is held to be had once more.
    ///
    /// A decision from such units says [`Source::Lease`](crate::Source::Lease). Its
    /// `remaining` and `reset_after` are as of the last trip to Redis, less than a
    /// second ago, without what others took since; this process's own checks are
    /// counted. While Redis fails, units that are paid for are used up.
    ///
    /// Only for a [`TokenBucket`](crate::TokenBucket) without [debts](Self::max_debt),
    /// in a layer without [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to):
    /// anything else is a [`ConfigError`]. A check of several policies at once,
    /// and all else than a plain check ([`peek`](crate::Limiter::peek),
    /// [`acquire`](crate::Limiter::acquire), ..), goes to Redis as without. A
    /// [`MemoryStore`](crate::MemoryStore), which answers at once anyway, ignores it.
    ///
    /// ```
    /// use tower_throttle::{ConfigError, FixedWindow, Limiter, Policy, TokenBucket};
    ///
    /// let everyone = Policy::new("everyone", TokenBucket::per_second(50_000))
    ///     .shared()
    ///     .lease();
    ///
    /// let window = Policy::new("window", FixedWindow::per_hour(50_000)).lease();
    /// let mistake = Limiter::builder().policy(window).build().unwrap_err();
    /// assert!(mistake.to_string().contains("TokenBucket"));
    /// ```
    pub const fn lease(mut self) -> Self {
        self.leases = true;
        self
    }

    /// One bucket for all callers together, whoever asks.
    ///
    /// A [key](Self::key) contradicts it, and building the layer returns an error.
    ///
    /// ```
    /// use tower_throttle::{ConfigError, Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let everyone = Policy::new("everyone", TokenBucket::per_second(5_000)).shared();
    /// let writes = everyone.clone().when(|head| head.method() != http::Method::GET);
    /// assert!(RateLimitLayer::builder().policy(writes).build().is_ok());
    ///
    /// let keyed = everyone.key(key::header("x-api-key"));
    /// let Err(ConfigError::InPolicy { mistake, .. }) =
    ///     RateLimitLayer::builder().policy(keyed).build()
    /// else {
    ///     panic!("a contradiction");
    /// };
    /// assert_eq!(*mistake, ConfigError::SharedAndKeyed);
    /// ```
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Checks all that can be seen before the first request. `on_store_failure`
    /// is for a policy that does not say.
    pub(crate) fn compile(
        &self,
        on_store_failure: OnStoreFailure,
    ) -> Result<Compiled, ConfigError> {
        let quota = self.quota.clone();
        let quota = quota.map_err(|mistake| match &self.name {
            Some(name) => mistake.in_policy(name),
            None => mistake,
        })?;
        let name = self.name.clone().unwrap_or_else(|| quota.to_name());
        let name = Name::new(&name).ok_or(ConfigError::PolicyName { name })?;
        let (cost, capacity) = (self.cost, quota.capacity());
        // A capacity of 0 is said on purpose: it refuses everything.
        if cost > capacity && capacity > 0 {
            return Err(ConfigError::CostAboveCapacity { cost, capacity }.in_policy(&name.text));
        }
        let most_debt = quota.most_debt();
        let debt = self.debt.unwrap_or(most_debt);
        if debt > most_debt {
            let mistake = ConfigError::DebtTooLarge {
                debt,
                most: most_debt,
            };
            return Err(mistake.in_policy(&name.text));
        }
        if self.leases {
            let beside = match (quota.leases(), self.debt) {
                (false, _) => Some("a quota that is no TokenBucket"),
                (true, Some(1..)) => Some("`max_debt(..)`"),
                (true, _) => None,
            };
            if let Some(beside) = beside {
                return Err(ConfigError::CannotLease { beside }.in_policy(&name.text));
            }
        }
        let on_store_failure = self.on_store_failure.unwrap_or(on_store_failure);
        if on_store_failure == OnStoreFailure::share_of(0) {
            let setting = "share_of";
            return Err(ConfigError::Zero { setting }.in_policy(&name.text));
        }
        Ok(Compiled {
            name,
            demand: Demand::new(quota.intern(), cost),
            // Who owes waits, which one who holds units need not.
            debt: if self.leases { 0 } else { debt },
            shared: self.shared,
            on_store_failure,
            leases: self.leases,
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

impl<Q> From<Q> for Policy
where
    Q: TryInto<Quota> + IsQuota,
    ConfigError: From<Q::Error>,
{
    fn from(quota: Q) -> Self {
        Self::unnamed(quota)
    }
}

/// A checked policy.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) name: Name,
    /// What is asked of it, unless the request says otherwise.
    pub(crate) demand: Demand,
    /// The most units that may be owed.
    pub(crate) debt: u64,
    pub(crate) shared: bool,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) leases: bool,
}

impl Compiled {
    /// What this policy asks of a caller's bucket.
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

/// Refuses none, and two of one name.
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

/// The quota types: what `From` above is for.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a quota nor a policy",
    note = "use a `Policy` or one of the quota types"
)]
pub trait IsQuota: sealed::Sealed {}

macro_rules! is_quota {
    ($($type:ty),+) => {
        $(
            impl IsQuota for $type {}
            impl sealed::Sealed for $type {}
        )+
    };
}
is_quota!(
    Quota,
    crate::TokenBucket,
    crate::LeakyBucket,
    crate::FixedWindow,
    crate::SlidingWindow,
    crate::SlidingLog,
    crate::Concurrency
);

mod sealed {
    pub trait Sealed {}
}
