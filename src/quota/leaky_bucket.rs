//! The leaky bucket: as a meter, and as a queue.
//!
//! As a meter it is the mirror image of a token bucket, and the same
//! arithmetic. As a queue its level is the time until all who wait have left.

use std::time::Duration;

use super::{Quota, per_period, token_bucket};
use crate::ConfigError;

/// Limits the rate like a [`TokenBucket`](crate::TokenBucket), or paces requests in a queue.
///
/// Each request pours its cost into a bucket that leaks `limit` units per period. A request that
/// does not fit is denied.
///
/// As a **meter** (the default) it admits the same requests as a
/// [`TokenBucket`](crate::TokenBucket) whose burst is this
/// [`capacity`](Self::capacity). Use it if your users know these words.
///
/// As a [`queue`](Self::queue) it paces: an admitted request waits for its turn, so that
/// requests leave evenly spaced. A request is denied only if the queue is full. Use it in
/// front of a service that must not see bursts.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::LeakyBucket;
///
/// let _fifteen_leaking_one_every_two_seconds =
///     LeakyBucket::new(1, Duration::from_secs(2)).capacity(15);
/// let _two_a_second_evenly_at_most_twenty_waiting = LeakyBucket::per_second(2).queue(20);
/// ```
///
/// **The danger of a queue** is that it holds connections: at most
/// `queue` units for each caller, each for up to `queue` times the interval.
///
/// **Limits** and **changed numbers** are as for
/// [`TokenBucket`](crate::TokenBucket).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct LeakyBucket {
    limit: u64,
    period: Duration,
    /// The capacity, or how many units wait.
    units: Option<u64>,
    paces: bool,
}

impl LeakyBucket {
    /// Creates a bucket that leaks `limit` units per `period`.
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self {
            limit,
            period,
            units: None,
            paces: false,
        }
    }

    /// Sets how much the bucket holds, in units. Default: the limit. At least 1.
    pub const fn capacity(mut self, units: u64) -> Self {
        (self.units, self.paces) = (Some(units), false);
        self
    }

    /// Holds admitted requests until their turn, at most `units` units at a time. Default: no
    /// queue. The request whose turn it is does not count. With 0, a request that comes before its turn
    /// is denied.
    ///
    /// A [`RateLimitLayer`](crate::RateLimitLayer) waits before it calls the
    /// inner service, [`Limiter::acquire`](crate::Limiter::acquire) before it
    /// returns. [`Limiter::check`](crate::Limiter::check) does not wait:
    /// [`Decision::delay`](crate::Decision::delay) returns how long the request has to.
    pub const fn queue(mut self, units: u64) -> Self {
        (self.units, self.paces) = (Some(units), true);
        self
    }
}

per_period!(LeakyBucket);

impl TryFrom<LeakyBucket> for Quota {
    type Error = ConfigError;

    fn try_from(bucket: LeakyBucket) -> Result<Self, ConfigError> {
        let LeakyBucket {
            limit,
            period,
            units,
            paces,
        } = bucket;
        let units = units.unwrap_or(limit);
        // The request whose turn it is does not wait.
        let capacity = units.saturating_add(u64::from(paces && limit > 0));
        match (limit, capacity) {
            (0, 1..) => return Err(token_bucket::burst_without_refill(capacity)),
            (1.., 0) => return Err(ConfigError::zero("capacity")),
            _ => {}
        }
        let rule = token_bucket::TokenBucketParams::new(limit, period, capacity, capacity)?;
        Ok(Self(super::Params::LeakyBucket { rule, paces }))
    }
}
