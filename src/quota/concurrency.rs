//! Concurrency: how many are in flight, not how many come.

use std::time::Duration;

use super::{
    EXACT, Quota,
    fixed_window::checked_window_ms,
    rules::{At, Change, Rules, Standing, State, until_ms},
};
use crate::ConfigError;

/// At most `limit` units in flight at a time, across the fleet.
///
/// Each admitted request holds a permit until its response has been sent to
/// the end, or was dropped, or failed. A permit has a
/// [`lifetime`](Self::lifetime), and is renewed for as long as it is held: what
/// a crashed process held comes back by itself when that has passed.
///
/// ```
/// use tower_throttle::Concurrency;
///
/// let _ten_at_a_time = Concurrency::new(10);
/// ```
///
/// When a permit comes back, nobody knows. So who is refused is told when the first of
/// the permits in its way would expire, in
/// [`Decision::retry_after`](crate::Decision::retry_after), and may be admitted much
/// sooner; the `Retry-After` of a layer is a second, and may be too soon.
///
/// **The danger**: a process that stands still for a whole lifetime loses its
/// permits, though its requests go on afterwards. Until they end, more than
/// `limit` may be in flight.
///
/// **When a response has ended.** A layer releases the permit when the server has taken the
/// last part of the body, which is before the client has received it. The server takes a
/// buffered body (`String`, `Bytes`, `Json`) in one piece. So its permit is released when the
/// response starts, however slowly the client reads. The server takes the next part of a
/// streamed body only when it has room in its send buffer. So a permit is held
/// until all but the buffered end has been sent. To count slow readers, stream the
/// body, or limit connections.
///
/// A connection that is upgraded (a WebSocket, a tunnel) outlives its response: the
/// layer's permit comes back with the response, before the first message. Hold one
/// of [`Limiter::acquire`](crate::Limiter::acquire) for as long as the connection lives.
///
/// Renewing needs a Tokio runtime with timers. Where a layer has a
/// [queue](crate::LeakyBucket::queue), too, a permit is held while its request
/// stands in it.
///
/// **Limits**, checked when the quota is used: a limit of at most 10,000 (each
/// permit is 24 bytes of one key, all of which are moved with each request), a
/// lifetime of whole milliseconds.
///
/// **Changed numbers.** Permits count until they end, under any limit; a
/// shorter lifetime shortens what is left of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Concurrency {
    limit: u64,
    lifetime: Duration,
}

/// The most permits of one key.
const MOST: u64 = 10_000;

const SHORTEST_LIFETIME: Duration = Duration::from_millis(100);

impl Concurrency {
    /// At most `limit` at a time.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            lifetime: Duration::from_secs(30),
        }
    }

    /// How long a permit lives that is not renewed; each is renewed when a
    /// third of that has passed. Default: 30 seconds; at least 100 ms. In Redis
    /// it should be many times the store's
    /// [deadline](crate::RedisStoreBuilder::deadline).
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
            return Err(ConfigError::TooManyPermits { limit, most: MOST });
        }
        if lifetime < SHORTEST_LIFETIME {
            return Err(ConfigError::LifetimeTooShort { lifetime });
        }
        Ok(Self(super::Rule::Concurrency(Rule { limit, lifetime_ms })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) limit: u64,
    pub(crate) lifetime_ms: u64,
}

#[derive(Clone, Copy)]
struct Permit {
    id: u64,
    ends_ms: u64,
    units: u64,
}

impl Rule {
    /// The permits that are held. None lives longer than if it were new.
    fn held<'s>(&self, stored: Option<&'s State>, at: At) -> impl Iterator<Item = Permit> + 's {
        let words = stored.map(|words| &words[..]).unwrap_or_default();
        let (now_ms, latest_ms) = (at.now_ms(), at.now_ms() + self.lifetime_ms);
        words.chunks_exact(3).filter_map(move |words| {
            let &[id, ends_ms, units] = words else {
                return None;
            };
            let ends_ms = ends_ms.min(latest_ms);
            (ends_ms > now_ms).then_some(Permit { id, ends_ms, units })
        })
    }

    /// When enough permits have expired for the cost to fit.
    fn fits_at_ms(&self, stored: Option<&State>, level: u64, at: At) -> u64 {
        let mut over = level.saturating_sub(at.most);
        if over == 0 {
            return 0;
        }
        let mut held: Vec<Permit> = self.held(stored, at).collect();
        held.sort_unstable_by_key(|permit| permit.ends_ms);
        for permit in held {
            over = over.saturating_sub(permit.units);
            if over == 0 {
                return permit.ends_ms;
            }
        }
        0
    }
}

/// Mark: when the last permit expires. More: when the cost fits, where it does
/// not fit now.
impl Rules for Rule {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn read(&self, stored: Option<&State>, at: At) -> Standing {
        let (mut level, mut mark) = (0_u64, 0);
        for permit in self.held(stored, at) {
            level = level.saturating_add(permit.units).min(EXACT);
            mark = mark.max(permit.ends_ms);
        }
        let latest_ms = at.now_ms() + self.lifetime_ms;
        let mut ends = stored.into_iter().flat_map(|words| words.chunks_exact(3));
        Standing {
            level,
            mark,
            more: self.fits_at_ms(stored, level, at),
            unsaved: ends.any(|words| words.get(1).is_some_and(|ends_ms| *ends_ms > latest_ms)),
        }
    }

    fn write(&self, stored: Option<State>, _: &Standing, change: Change, at: At) -> State {
        let mut state = State::new();
        let ends_ms = at.now_ms() + self.lifetime_ms;
        for mut permit in self.held(stored.as_ref(), at) {
            if permit.id == at.permit {
                match change {
                    Change::Give(_) => continue,
                    Change::Renew => permit.ends_ms = ends_ms,
                    Change::Take(_) => {}
                }
            }
            state.extend([permit.id, permit.ends_ms, permit.units]);
        }
        if let Change::Take(units @ 1..) = change {
            state.extend([at.permit, ends_ms, units]);
        }
        state
    }

    fn drained_at_us(&self, state: &State) -> u64 {
        let ends = state.chunks_exact(3).filter_map(|words| words.get(1));
        ends.max().copied().unwrap_or(0).saturating_mul(1_000)
    }

    fn after(&self, standing: Standing, change: Change, at: At) -> Standing {
        Standing {
            level: change.applied_to(standing.level),
            mark: match change {
                Change::Take(1..) => standing.mark.max(at.now_ms() + self.lifetime_ms),
                _ => standing.mark,
            },
            ..standing
        }
    }

    /// The permit's units, whatever the cost.
    fn returnable(&self, stored: Option<&State>, _: &Standing, _: u64, at: At) -> u64 {
        let mut held = self.held(stored, at);
        let permit = held.find(|permit| permit.id == at.permit);
        permit.map_or(0, |permit| permit.units)
    }

    fn retry_us(&self, standing: &Standing, _: u64, now_us: u64) -> Option<u64> {
        Some(until_ms(standing.more, now_us))
    }

    fn reset_us(&self, standing: &Standing, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    fn effective_window_us(&self, standing: &Standing, now_us: u64) -> u64 {
        self.reset_us(standing, now_us)
    }
}
