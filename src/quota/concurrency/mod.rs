//! Concurrency, as users set it: how many requests run at once.

mod params;

use std::time::Duration;

pub(crate) use self::params::ConcurrencyParams;
use super::{Params, Quota, window::checked_window_ms};
use crate::ConfigError;

/// Limits how many requests are in flight at a time, in all processes together.
///
/// Each admitted request holds a permit until its response has ended, has failed or was dropped.
/// Outside HTTP, [`Limiter::acquire`](crate::Limiter::acquire) returns a [`Permit`](crate::Permit).
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Concurrency, Limiter, MemoryStore};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let exports = Limiter::new(MemoryStore::new(), Concurrency::new(1)); // one at a time for each key
/// let first = exports.acquire("ann", Duration::ZERO).await?;
/// assert!(first.is_allowed());
/// assert!(!exports.acquire("ann", Duration::ZERO).await?.is_allowed());
/// assert!(exports.acquire("bob", Duration::ZERO).await?.is_allowed());
/// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
/// ```
///
/// **Counting.** The store keeps one entry for each process and key: how many permits the
/// process holds, and when they expire. Every message of a process states its exact count, so
/// the next message corrects whatever was lost, late or repeated. The process renews its entry
/// once for all its permits, after a quarter to a third of the [`lifetime`](Self::lifetime). So
/// the cost of a check grows with the number of processes, and not with that of permits. Permits
/// that are released together come back in one or two messages. Permits of a crashed process are
/// free after one lifetime. If Redis loses its data, the next message of each process restores
/// its count.
///
/// **Waiting.** The time of a release is unknown. For a denied request,
/// [`Decision::retry_after`](crate::Decision::retry_after) is the time until enough permits
/// expire, if their processes do not renew them. It is one lifetime if the asking process itself
/// holds too many. Permits may be released much sooner. The `Retry-After` of a layer is one
/// second, and may be too soon.
///
/// Callers that [wait](crate::Limiter::acquire) in the same process are admitted in the order in
/// which they came, each as soon as a permit of this process is released. A release in another
/// process is noticed within 1.13 seconds. The first waiter asks again after 50 ms, and then
/// after pauses that grow to a second.
///
/// **The danger**: a process that is paused for a whole lifetime loses its permits, though its
/// requests continue afterwards. Until they end, more than `limit` may be in flight.
///
/// **When a response has ended.** A layer releases the permit when the server has taken the
/// last part of the body, which is before the client has received it. The server takes a
/// buffered body (`String`, `Bytes`, `Json`) in one piece. So its permit is released when the
/// response starts, however slowly the client reads. The server takes the next part of a
/// streamed body only when it has room in its send buffer. So the permit of such a response is
/// held until all but the buffered end has been sent. To count slow readers, stream the body, or
/// limit connections.
///
/// A connection that is upgraded (a WebSocket, a tunnel) outlives its response: the
/// layer's permit comes back with the response, before the first message. Hold one
/// of [`Limiter::acquire`](crate::Limiter::acquire) for as long as the connection lives.
///
/// Renewing needs a Tokio runtime with timers. If a layer has a
/// [queue](crate::LeakyBucket::queue), too, a request in the queue holds its permit.
///
/// **Limits**, checked when the quota is used: a limit of at most 10<sup>15</sup>, a
/// lifetime of whole milliseconds. In Redis at most 10,000 processes hold permits of
/// one key; further ones are denied. An entry is 56 bytes, and each check reads all
/// entries of its key.
///
/// **Changed numbers.** Permits count until they end, under any limit. A shorter lifetime also
/// applies to permits that are held.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Concurrency {
    limit: u64,
    lifetime: Duration,
}

/// The most permits of one key. Sums of them stay exact in Lua.
const MOST: u64 = 1_000_000_000_000_000;

pub(super) const DEFAULT_LIFETIME: Duration = Duration::from_secs(30);

const SHORTEST_LIFETIME: Duration = Duration::from_millis(100);

impl Concurrency {
    /// Allows at most `limit` units at a time.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            lifetime: DEFAULT_LIFETIME,
        }
    }

    /// Sets how long permits live that are not renewed. Default: 30 seconds; at least
    /// 100 ms. A process renews all its permits of a key together, when a quarter to a third of
    /// that has passed. With Redis it should be many times the store's
    /// [timeout](crate::RedisStoreBuilder::timeout).
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }
}

impl TryFrom<Concurrency> for Quota {
    type Error = ConfigError;

    fn try_from(concurrency: Concurrency) -> Result<Self, ConfigError> {
        let Concurrency { limit, lifetime } = concurrency;
        let lifetime_ms = checked_window_ms(lifetime)?;
        if limit > MOST {
            let message = format!(
                "a Concurrency limit of {limit} exceeds the maximum of {MOST} permits under one key; lower it, or use more keys"
            );
            return Err(ConfigError::new("too-many-permits", message));
        }
        if lifetime < SHORTEST_LIFETIME {
            let message = format!(
                "a permit lifetime of {lifetime:?} is too short to renew; use `lifetime(..)` of 100 ms or more"
            );
            return Err(ConfigError::new("lifetime-too-short", message));
        }
        Ok(Self(Params::Concurrency(ConcurrencyParams {
            limit,
            lifetime_ms,
        })))
    }
}
