//! The token bucket, kept as one instant.
//!
//! A bucket that lacks some tokens is full again at a known instant, its
//! "theoretical arrival time" in the words of GCRA (ITU-T I.371). Storing only
//! that instant, in nanoseconds, makes the state one word and the arithmetic
//! integer: taking n tokens moves it n intervals on, and it fits if the
//! bucket's whole depth is not exceeded.

use std::time::Duration;

use super::{EXACT, Quota, Standing, State, per_period};
use crate::ConfigError;

/// `limit` tokens flow in per period, evenly; at most `burst` are kept; a request takes its cost.
///
/// The choice for most APIs: bursts pass, the sustained rate holds, and nobody
/// waits longer than the tokens that are missing. The rate is exact to the
/// nanosecond: never above what is configured, and at most 0.1% below it.
///
/// Defaults: `burst` equals the limit; a new caller starts with a full bucket.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::TokenBucket;
///
/// let _ten_a_second_at_most_twenty_at_once = TokenBucket::per_second(10).burst(20);
/// let _one_every_two_seconds = TokenBucket::new(1, Duration::from_secs(2));
/// ```
///
/// **Limits**, checked when the quota is used: at most 1,000,000 a second, and
/// a bucket that fills from empty in at most 104 days (2^53 nanoseconds).
/// A limit of 0 refuses everything that costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct TokenBucket {
    limit: u64,
    period: Duration,
    burst: Option<u64>,
    initial: Option<u64>,
}

impl TokenBucket {
    /// `limit` tokens per `period`, whatever the period.
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self {
            limit,
            period,
            burst: None,
            initial: None,
        }
    }

    /// How many tokens the bucket holds, so how many can be taken at once.
    /// Default: the limit. At least 1; 1 paces callers one by one.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// How many tokens a caller has who was never seen before. Default: a full bucket.
    ///
    /// The first request starts the caller's refill, even when it is refused.
    /// A caller is forgotten once the bucket has been full for as long as it
    /// takes to fill from empty, and at least a minute, and starts anew with
    /// `initial` tokens after that. So beside another policy with a longer wait, `retry_after` is
    /// enough only if `initial` covers the cost.
    pub const fn initial(mut self, initial: u64) -> Self {
        self.initial = Some(initial);
        self
    }
}

per_period!(TokenBucket);

impl TryFrom<TokenBucket> for Quota {
    type Error = ConfigError;

    fn try_from(bucket: TokenBucket) -> Result<Self, ConfigError> {
        Rule::new(bucket).map(|rule| Self(super::Rule::TokenBucket(rule)))
    }
}

/// Longer than a client oversleeps who waits for a `Retry-After` in whole
/// seconds: the tokens it waited for must still be its own.
const LEAST_REMEMBERED_NS: u64 = 60_000_000_000;

/// Clocks tick in microseconds. A bucket that is full before the next tick is
/// full: otherwise one that holds a single token would wait for the tick after
/// each refill, and fall behind its rate.
pub(super) const SLACK_NS: u64 = 999;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) limit: u64,
    pub(crate) period_ns: u64,
    pub(crate) burst: u64,
    /// The time that one token takes to flow in, rounded up: the rate is never exceeded.
    pub(crate) interval_ns: u64,
    /// The time from empty to full: `burst` intervals.
    pub(crate) capacity_ns: u64,
    /// The level at which an unknown caller starts.
    pub(crate) initial_ns: u64,
}

impl Rule {
    fn new(bucket: TokenBucket) -> Result<Self, ConfigError> {
        let TokenBucket {
            limit,
            period,
            burst,
            initial,
        } = bucket;
        let too_deep = ConfigError::BucketTooDeep { limit, period };

        let period_ns = match u64::try_from(period.as_nanos()) {
            Ok(0) => return Err(ConfigError::ZeroPeriod),
            Ok(period_ns) => period_ns,
            Err(_) => return Err(too_deep),
        };
        if u128::from(limit) * 1_000 > u128::from(period_ns) {
            return Err(ConfigError::RateTooHigh { limit, period });
        }
        let burst = match (limit, burst) {
            (0, Some(burst @ 1..)) => return Err(ConfigError::BurstWithoutRefill { burst }),
            (1.., Some(0)) => return Err(ConfigError::Zero { setting: "burst" }),
            (_, burst) => burst.unwrap_or(limit),
        };
        let initial = initial.unwrap_or(burst);
        if initial > burst {
            return Err(ConfigError::InitialAboveBurst { initial, burst });
        }

        let interval_ns = period_ns.div_ceil(limit.max(1));
        let capacity_ns = match burst.checked_mul(interval_ns) {
            Some(capacity_ns) if capacity_ns < EXACT - SLACK_NS => capacity_ns,
            _ => return Err(too_deep),
        };
        Ok(Self {
            limit,
            period_ns,
            burst,
            interval_ns,
            capacity_ns,
            initial_ns: (burst - initial) * interval_ns,
        })
    }

    /// How long a full bucket is remembered. A caller who starts full can be forgotten at once.
    pub(crate) fn remembered_ns(&self) -> u64 {
        if self.initial_ns == 0 {
            0
        } else {
            self.capacity_ns.max(LEAST_REMEMBERED_NS)
        }
    }

    pub(super) fn read(&self, stored: Option<State>, now_us: u64) -> Standing {
        let now_ns = now_us.saturating_mul(1_000);
        let known = stored.filter(|State(full_at_ns, _)| {
            full_at_ns.saturating_add(self.remembered_ns()) > now_ns
        });
        let (level, unsaved) = match known {
            None => (self.initial_ns, self.initial_ns > 0),
            Some(State(full_at_ns, _)) => {
                let ahead_ns = full_at_ns.saturating_sub(now_ns);
                if ahead_ns > self.capacity_ns + SLACK_NS {
                    (self.capacity_ns, true)
                } else {
                    (ahead_ns, false)
                }
            }
        };
        Standing {
            level,
            ends_ms: 0,
            unsaved,
        }
    }

    pub(super) fn drained_at_us(&self, State(full_at_ns, _): State) -> u64 {
        full_at_ns
            .saturating_add(self.remembered_ns())
            .div_ceil(1_000)
    }

    pub(super) fn effective_window_us(&self, level: u64) -> u64 {
        let left = self.capacity_ns.saturating_sub(level);
        let next_token_ns = if level == 0 {
            0
        } else {
            self.interval_ns - left % self.interval_ns
        };
        let (remaining, limit) = (left / self.interval_ns, self.limit.max(1));
        // Small enough nearly always, and then much faster.
        let at_rate_ns = match remaining.checked_mul(self.period_ns) {
            Some(product) => product.div_ceil(limit),
            None => {
                let product = u128::from(remaining) * u128::from(self.period_ns);
                u64::try_from(product.div_ceil(limit.into())).unwrap_or(u64::MAX)
            }
        };
        at_rate_ns.max(next_token_ns).div_ceil(1_000)
    }
}

pub(super) fn state(standing: Standing, now_us: u64) -> State {
    State(
        now_us.saturating_mul(1_000).saturating_add(standing.level),
        0,
    )
}
