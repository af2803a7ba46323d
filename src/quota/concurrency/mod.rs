//! Concurrency: how many requests run at once.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    EXACT, Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, until_ms},
    statement::Statement,
    window::checked_window_ms,
};
use crate::ConfigError;

/// At most `limit` units in flight at a time, in all processes together.
///
/// Each admitted request holds a permit until its response has ended, has failed or was
/// dropped.
///
/// ```
/// use tower_throttle::Concurrency;
///
/// let _ten_at_a_time = Concurrency::new(10);
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
/// requests go on afterwards. Until they end, more than `limit` may be in flight.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
            return Err(ConfigError::TooManyPermits { limit, max: MOST });
        }
        if lifetime < SHORTEST_LIFETIME {
            return Err(ConfigError::LifetimeTooShort { lifetime });
        }
        Ok(Self(super::Params::Concurrency(ConcurrencyParams {
            limit,
            lifetime_ms,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConcurrencyParams {
    pub(crate) limit: u64,
    pub(crate) lifetime_ms: u64,
}

/// What a bucket stores for one holder.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    holder: u64,
    ends_ms: u64,
    /// 0: the holder is new.
    version: u64,
    settled: u64,
    held: i64,
    /// Units taken in the two groups after `settled`.
    first: u64,
    second: u64,
}

/// The number of words of an [`Entry`].
const WORDS: usize = 7;

impl Entry {
    const fn from_words(words: &[u64; WORDS]) -> Self {
        let [holder, ends_ms, version, settled, held, first, second] = *words;
        Self {
            holder,
            ends_ms,
            version,
            settled,
            held: held as i64,
            first,
            second,
        }
    }

    const fn words(&self) -> [u64; WORDS] {
        [
            self.holder,
            self.ends_ms,
            self.version,
            self.settled,
            self.held as u64,
            self.first,
            self.second,
        ]
    }

    fn units(&self) -> u64 {
        let taken = self.first.saturating_add(self.second);
        let units = self.held.saturating_add_unsigned(taken);
        u64::try_from(units).unwrap_or(0).min(EXACT)
    }

    /// Applies a newer statement.
    fn apply(&mut self, statement: &Statement) {
        if statement.settled == self.settled.saturating_add(1) {
            (self.first, self.second) = (self.second, 0);
        } else if statement.settled != self.settled {
            (self.first, self.second) = (0, 0);
        }
        self.version = statement.version;
        self.settled = statement.settled;
        self.held = statement.held;
    }

    /// Returns the count that this statement's take adds to; `None` if its group is settled,
    /// because its caller gave up.
    fn group(&mut self, statement: &Statement) -> Option<&mut u64> {
        let group = statement.settled.saturating_add(statement.group);
        match group.checked_sub(self.settled) {
            Some(1) => Some(&mut self.first),
            Some(2) => Some(&mut self.second),
            _ => None,
        }
    }
}

/// A bucket as a check finds it: live entries only, and the sender's statement applied.
struct Found {
    others: SmallVec<[Entry; 4]>,
    own: Entry,
    /// No newer statement of the sender is known.
    is_latest: bool,
    /// Its statement changed its units.
    is_changed: bool,
    /// An expiry was beyond the lifetime.
    is_clamped: bool,
}

impl ConcurrencyParams {
    fn latest_ms(&self, at: &ReadContext<'_>) -> u64 {
        at.now_ms() + self.lifetime_ms
    }

    fn open(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> Found {
        let (now_ms, latest_ms) = (at.now_ms(), self.latest_ms(at));
        let holder = at.statement.map_or(0, |statement| statement.holder);
        let mut found = Found {
            others: SmallVec::new(),
            own: Entry::default(),
            is_latest: false,
            is_changed: false,
            is_clamped: false,
        };
        let words = stored.unwrap_or_default();
        for words in words.chunks_exact(WORDS) {
            let Ok(words) = words.try_into() else {
                continue;
            };
            let mut entry = Entry::from_words(words);
            found.is_clamped |= entry.ends_ms > latest_ms;
            entry.ends_ms = entry.ends_ms.min(latest_ms);
            if entry.ends_ms <= now_ms {
                continue;
            }
            if entry.holder == holder && found.own.version == 0 {
                found.own = entry;
            } else {
                found.others.push(entry);
            }
        }
        if let Some(statement) = at.statement {
            let before = found.own.units();
            let own = &mut found.own;
            own.holder = statement.holder;
            found.is_latest = statement.version >= own.version;
            if statement.version > own.version {
                own.apply(statement);
            }
            found.is_changed = own.units() != before;
            if found.is_changed {
                own.ends_ms = latest_ms;
            }
        }
        found
    }

    /// Returns when enough entries have expired for the cost to fit, if their processes do not
    /// renew them. The sender is alive, so its own entry counts as the last to expire.
    fn fits_at_ms(&self, found: &Found, level: u64, at: &ReadContext<'_>) -> u64 {
        let mut over = level.saturating_sub(at.most);
        if over == 0 {
            return 0;
        }
        let mut held: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        held.extend(found.others.iter().map(|one| (one.ends_ms, one.units())));
        held.push((self.latest_ms(at), found.own.units()));
        held.sort_unstable();
        for (ends_ms, units) in held {
            over = over.saturating_sub(units);
            if over == 0 {
                return ends_ms;
            }
        }
        0
    }
}

/// `mark` is when the last permit expires. `more` is when the cost fits, if it does not fit now.
impl BucketState {
    /// Returns when what is asked fits, because permits have expired; 0 if that is unknown.
    const fn fits_at_ms(&self) -> u64 {
        self.more
    }
}

impl Arithmetic for ConcurrencyParams {
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let mut found = self.open(stored, at);
        let (mut level, mut mark) = (0_u64, 0);
        for entry in found.others.iter().chain([&found.own]) {
            if entry.units() > 0 {
                level = level.saturating_add(entry.units()).min(EXACT);
                mark = mark.max(entry.ends_ms);
            }
        }
        let fits_at_ms = self.fits_at_ms(&found, level, at);
        let takes = at.statement.filter(|statement| statement.group > 0);
        if takes.is_some_and(|statement| found.own.group(statement).is_none()) {
            level = EXACT;
        }
        BucketState {
            level,
            mark,
            more: fits_at_ms,
            unsaved: found.is_clamped || found.is_changed,
        }
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        _: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let mut found = self.open(stored().as_deref(), at);
        let mut state = State::new();
        for entry in &found.others {
            state.extend_from_slice(&entry.words());
        }
        let Some(statement) = at.statement else {
            return state;
        };
        if let Change::Take(units @ 1..) = change {
            if let Some(taken) = found.own.group(statement) {
                *taken = taken.saturating_add(units);
            }
        }
        if found.is_latest && change != Change::Take(0) {
            found.own.ends_ms = self.latest_ms(at);
        }
        if found.own.units() > 0 || !found.is_latest || statement.is_remembered {
            state.extend_from_slice(&found.own.words());
        }
        state
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let ends = state.chunks_exact(WORDS).filter_map(|words| words.get(1));
        ends.max().copied().unwrap_or(0).saturating_mul(1_000)
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        BucketState {
            level: change.applied_to(standing.level),
            mark: match change {
                Change::Take(1..) => standing.mark.max(self.latest_ms(at)),
                _ => standing.mark,
            },
            ..standing
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        Some(match standing.fits_at_ms() {
            0 => self.lifetime_ms.saturating_mul(1_000),
            fits_at_ms => until_ms(fits_at_ms, now_us),
        })
    }

    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        self.reset_us(standing, now_us)
    }
}
