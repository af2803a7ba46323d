//! The token bucket, as users set it.

mod params;

use std::time::Duration;

pub(super) use self::params::SLACK_NS;
pub(crate) use self::params::TokenBucketParams;
use super::{
    Params, Quota, per_period,
    window::{LONGEST_WINDOW_MS, WindowParams},
};
use crate::ConfigError;

/// Allows bursts up to `burst` and a sustained rate of `limit` per `period`.
///
/// The bucket refills evenly with `limit` tokens per period, up to `burst` tokens. A request takes
/// its cost in tokens. Choose it for most APIs: bursts pass, the sustained rate holds, and no
/// caller waits longer than until the missing tokens are refilled. The rate is never above the
/// configured one, and at most 0.1% below it.
///
/// In the first period a new caller may have the burst and the refill: `per_minute(30)` admits up
/// to 60 requests in the first minute. A smaller [`burst`](Self::burst) admits fewer.
///
/// Defaults: `burst` equals the limit; a new caller starts with a full bucket.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::TokenBucket;
///
/// let _ten_a_second_at_most_twenty_at_once = TokenBucket::per_second(10).burst(20);
/// let _one_every_two_seconds = TokenBucket::new(1, Duration::from_secs(2));
/// let _five_by_hand = TokenBucket::without_refill(5);
/// ```
///
/// **Limits**, checked when the quota is used: at most 1,000,000 a second, and a bucket that
/// fills from empty in at most 104 days, which is 2^53 nanoseconds. A limit of 0 denies every
/// request that costs more than 0.
///
/// **Changed numbers.** Taken tokens stay taken, and come back at the new rate from the caller's
/// first check on. They count up to the new burst, so no old state locks out a caller, and no
/// caller gets more than the new burst. A debt counts in full. With
/// [`refill_at_once`](Self::refill_at_once), taken tokens count up to twice the new burst. If the
/// period becomes longer, they come back at the end of the old one. What the old numbers would have
/// refilled by then may be forgotten, if no request was admitted since.
///
/// Counts start anew if a bucket that refills evenly becomes one that refills at once or never, or
/// the reverse.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TokenBucket {
    limit: u64,
    period: Duration,
    burst: Option<u64>,
    initial: Option<u64>,
    refill: Refill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refill {
    Evenly,
    AtOnce,
    Never,
}

impl TokenBucket {
    /// Creates a bucket of `limit` tokens per `period`.
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self {
            limit,
            period,
            burst: None,
            initial: None,
            refill: Refill::Evenly,
        }
    }

    /// Creates a bucket without refill. Tokens come back only by
    /// [`Limiter::credit`](crate::Limiter::credit) or [`reset`](crate::Limiter::reset).
    ///
    /// A caller is remembered for 100 years. Waiting cannot help a denied caller, so no
    /// `Retry-After` is sent.
    pub const fn without_refill(burst: u64) -> Self {
        Self {
            limit: 0,
            period: Duration::from_millis(LONGEST_WINDOW_MS),
            burst: Some(burst),
            initial: None,
            refill: Refill::Never,
        }
    }

    /// Adds the whole `limit` at once, each time a period ends. The first
    /// period starts with the first token that is taken from a full bucket, even
    /// if a credit filled it.
    ///
    /// Default: evenly, one token after another. With this, periods are whole
    /// milliseconds of at most 100 years, and the rate has no upper bound.
    pub const fn refill_at_once(mut self) -> Self {
        self.refill = Refill::AtOnce;
        self
    }

    /// Sets how many tokens the bucket holds, and so how many can be taken at once.
    /// Default: the limit. At least 1; 1 paces callers one by one.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Sets how many tokens an unknown caller has. Default: a full bucket.
    ///
    /// The first request starts the caller's refill, even if it is denied. A caller is forgotten
    /// once its bucket has been full for as long as it takes to fill from empty, and at least a
    /// minute. After that, it starts with `initial` tokens again. So together with another policy
    /// that has a longer wait, `retry_after` is enough only if `initial` covers the cost.
    pub const fn initial(mut self, initial: u64) -> Self {
        self.initial = Some(initial);
        self
    }
}

per_period!(TokenBucket);

impl TryFrom<TokenBucket> for Quota {
    type Error = ConfigError;

    fn try_from(bucket: TokenBucket) -> Result<Self, ConfigError> {
        let TokenBucket { limit, period, .. } = bucket;
        let burst = bucket.burst.unwrap_or(limit);
        let initial = bucket.initial.unwrap_or(burst);
        match (limit, burst) {
            (0, 1..) if bucket.refill != Refill::Never => return Err(burst_without_refill(burst)),
            (1.., 0) => return Err(ConfigError::zero("burst")),
            (0, 0) if bucket.refill == Refill::Never => return Err(ConfigError::zero("burst")),
            _ => {}
        }
        if initial > burst {
            let message = format!(
                "`initial({initial})` exceeds the burst of {burst}; lower it, or raise the burst"
            );
            return Err(ConfigError::new("initial-above-burst", message));
        }
        Ok(Self(match bucket.refill {
            Refill::Evenly => {
                Params::TokenBucket(TokenBucketParams::new(limit, period, burst, initial)?)
            }
            Refill::AtOnce | Refill::Never => Params::IntervalBucket(WindowParams {
                refill: Some(limit),
                initial_used: burst - initial,
                ..WindowParams::new(burst, period)?
            }),
        }))
    }
}

pub(super) fn burst_without_refill(burst: u64) -> ConfigError {
    let message = format!(
        "a burst of {burst} with a limit of 0, which denies everything; set a limit, drop the burst, or use `TokenBucket::without_refill({burst})`"
    );
    ConfigError::new("burst-without-refill", message)
}
