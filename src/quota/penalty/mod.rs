//! Penalties: bans of callers that misbehaved too often.

use std::time::Duration;

use super::{
    EXACT, Params, Quota,
    arithmetic::{Arithmetic, BucketState, Change, ReadContext, State, until_ms},
    window::{LAST_END_MS, checked_window_ms},
};
use crate::ConfigError;

/// Bans a caller after so many strikes, for longer each time if you say so.
///
/// It takes no units of a request: it asks whether the caller is banned. Strikes come from responses
/// ([`Policy::settle_by`](crate::Policy::settle_by)), from denials by other policies
/// ([`Policy::strike_on_denial`](crate::Policy::strike_on_denial)), and from
/// [`Limiter::strike`](crate::Limiter::strike) or [`Buckets::strike`](crate::Buckets::strike)
/// wherever the application notices something. [`Limiter::ban`](crate::Limiter::ban) bans by hand,
/// and a [`reset`](crate::Limiter::reset) lifts a ban and forgets all strikes.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Penalty;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// // Twenty strikes in ten minutes: banned for five minutes, then for ten, twenty, .. and at most
/// // for a day. After a week without a ban, the next one lasts five minutes again.
/// let _scanners = Penalty::after(20)
///     .within(10 * MINUTE)
///     .lasting(5 * MINUTE)
///     .doubling_up_to(24 * 60 * MINUTE)
///     .forgiven_after(7 * 24 * 60 * MINUTE);
/// ```
///
/// **Counting.** The first strike starts a window, in which strikes are counted. The last of
/// `after` strikes in one window starts the ban, and no strike is left when it ends. Callers
/// without strikes have no bucket, and their checks write nothing.
///
/// **During a ban** all requests are denied and no strikes are counted, so that the ban ends when
/// its `Retry-After` says, whatever the caller does. [`prolonging`](Self::prolonging) changes that.
///
/// **The danger** is the key. Ban by a name that others can write, such as a user name, and they
/// ban whom they like. Ban by address, and all callers behind a NAT are banned with one of them.
/// `docs/bans.md` says what to do.
///
/// **Limits**, checked when the quota is used: times of whole milliseconds, up to 100 years; fewer
/// than 2<sup>53</sup> strikes.
///
/// **Changed numbers.** A ban ends when it was to end. Strikes count until their window ends: at
/// its old end, or at the end of a window that starts now, whichever is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Penalty {
    after: u64,
    within: Duration,
    lasting: Duration,
    longest: Option<Duration>,
    forgiven_after: Option<Duration>,
    prolongs: bool,
}

pub(super) const TEN_MINUTES: Duration = Duration::from_secs(600);

impl Penalty {
    /// Bans a caller for ten minutes after so many strikes within ten minutes.
    pub const fn after(strikes: u64) -> Self {
        Self {
            after: strikes,
            within: TEN_MINUTES,
            lasting: TEN_MINUTES,
            longest: None,
            forgiven_after: None,
            prolongs: false,
        }
    }

    /// Sets the window in which strikes are counted. It starts with the first strike. Default: ten
    /// minutes.
    pub const fn within(mut self, window: Duration) -> Self {
        self.within = window;
        self
    }

    /// Sets how long a ban lasts, or the first one if bans are
    /// [doubled](Self::doubling_up_to). Default: ten minutes.
    pub const fn lasting(mut self, ban: Duration) -> Self {
        self.lasting = ban;
        self
    }

    /// Doubles each ban of a caller, up to this one, until it is
    /// [forgiven](Self::forgiven_after). Default: all bans are equally long.
    ///
    /// Bans [by hand](crate::Limiter::ban) do not count.
    pub const fn doubling_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Sets after how long without a ban the next one is as short as the first. The time starts
    /// when a ban ends. Default: as long as the longest ban.
    pub const fn forgiven_after(mut self, peace: Duration) -> Self {
        self.forgiven_after = Some(peace);
        self
    }

    /// Starts a ban anew with each request and each strike during it. Default: it ends when it was
    /// to end.
    ///
    /// **The danger**: a client that retries in a loop never gets out.
    ///
    /// Of requests that are denied from a
    /// [cached denial](crate::RedisStoreBuilder::denial_cache_ttl), Redis learns nothing: such a
    /// ban may end up to that time early.
    pub const fn prolonging(mut self) -> Self {
        self.prolongs = true;
        self
    }
}

impl TryFrom<Penalty> for Quota {
    type Error = ConfigError;

    fn try_from(penalty: Penalty) -> Result<Self, ConfigError> {
        let Penalty {
            after,
            within,
            lasting,
            longest,
            forgiven_after,
            prolongs,
        } = penalty;
        if after == 0 {
            return Err(ConfigError::Zero {
                setting: "Penalty::after",
            });
        }
        if after >= EXACT {
            return Err(ConfigError::LimitTooLarge { limit: after });
        }
        let (window_ms, first_ms) = (checked_window_ms(within)?, checked_window_ms(lasting)?);
        let (longest_ms, forgiven_ms) = match (longest, forgiven_after) {
            (None, None) => (first_ms, 0),
            (None, Some(_)) => return Err(ConfigError::NothingToForgive),
            (Some(longest), forgiven_after) => {
                if longest < lasting {
                    return Err(ConfigError::LongestBanTooShort { lasting, longest });
                }
                let longest_ms = checked_window_ms(longest)?;
                let peace = forgiven_after.unwrap_or(longest);
                (longest_ms, checked_window_ms(peace)?)
            }
        };
        Ok(Self(Params::Penalty(PenaltyParams {
            after,
            window_ms,
            first_ms,
            longest_ms,
            forgiven_ms,
            prolongs,
        })))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PenaltyParams {
    pub(crate) after: u64,
    pub(crate) window_ms: u64,
    pub(crate) first_ms: u64,
    pub(crate) longest_ms: u64,
    /// 0 if bans are not doubled.
    pub(crate) forgiven_ms: u64,
    pub(crate) prolongs: bool,
}

/// The quota of a ban in a control document, of which nobody counts strikes.
#[cfg(feature = "control")]
pub(crate) static BAN: Quota = Quota(Params::Penalty(BAN_PARAMS));

#[cfg(feature = "control")]
const BAN_PARAMS: PenaltyParams = PenaltyParams {
    after: 1,
    window_ms: 1,
    first_ms: 1,
    longest_ms: 1,
    forgiven_ms: 0,
    prolongs: false,
};

/// Returns a time in milliseconds, rounded up, and at least one.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    let ms = time.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

/// So many bans are counted. Twice as long 62 times is above any longest ban.
const MOST_BANS: u64 = 63;

/// `mark` is the end of the ban; without a ban, that of the window of strikes, or 0.
impl BucketState {
    /// Returns the state under [`BAN`].
    #[cfg(feature = "control")]
    pub(crate) fn banned_until(until_ms: u64) -> Self {
        BAN_PARAMS.ban(until_ms, 0)
    }

    /// Returns how many bans count for the length of the next one.
    const fn bans(&self) -> u64 {
        self.more
    }
}

impl PenaltyParams {
    /// Returns the level of a banned caller: nothing fits, not even a cost of 0.
    const fn banned(&self) -> u64 {
        self.after + 1
    }

    pub(crate) const fn is_banned(&self, standing: &BucketState) -> bool {
        standing.level > self.after
    }

    /// Returns how long a ban lasts that is the caller's ban of this number.
    fn length_ms(&self, number: u64) -> u64 {
        let doublings = number.clamp(1, MOST_BANS) - 1;
        let length_ms = self.first_ms.saturating_mul(1 << doublings);
        length_ms.min(self.longest_ms)
    }

    fn ban(&self, until_ms: u64, bans: u64) -> BucketState {
        BucketState {
            level: self.banned(),
            mark: until_ms.min(LAST_END_MS),
            more: bans,
            unsaved: true,
        }
    }

    /// Returns the state as it is stored.
    fn stored(&self, stored: Option<&[u64]>, now_ms: u64) -> BucketState {
        let Some(&[until_ms, ends_ms, strikes, bans]) = stored else {
            return BucketState::default();
        };
        if until_ms > now_ms {
            return BucketState {
                unsaved: false,
                ..self.ban(until_ms, bans)
            };
        }
        let is_forgiven = until_ms.saturating_add(self.forgiven_ms) <= now_ms;
        let more = if is_forgiven { 0 } else { bans };
        if ends_ms <= now_ms {
            return BucketState {
                more,
                ..BucketState::default()
            };
        }
        let latest_ms = now_ms.saturating_add(self.window_ms);
        BucketState {
            // One less than a ban, if there were more under other numbers.
            level: strikes.min(self.after - 1),
            mark: ends_ms.min(latest_ms),
            more,
            unsaved: ends_ms > latest_ms,
        }
    }

    /// Returns the state after strikes. During a ban, they do not count.
    fn struck(&self, standing: BucketState, strikes: u64, now_ms: u64) -> BucketState {
        if strikes == 0 || self.is_banned(&standing) {
            return standing;
        }
        let level = standing.level.saturating_add(strikes);
        if level >= self.after {
            let bans = (standing.bans() + 1).min(MOST_BANS);
            return self.ban(now_ms.saturating_add(self.length_ms(bans)), bans);
        }
        let ends_ms = now_ms.saturating_add(self.window_ms).min(LAST_END_MS);
        BucketState {
            level,
            mark: if standing.level == 0 {
                ends_ms
            } else {
                standing.mark
            },
            unsaved: true,
            ..standing
        }
    }
}

impl Arithmetic for PenaltyParams {
    fn capacity(&self) -> u64 {
        self.after
    }

    /// No strikes are owed: those beyond a ban do not count.
    fn highest(&self) -> u64 {
        self.after
    }

    fn read(&self, stored: Option<&[u64]>, at: &ReadContext<'_>) -> BucketState {
        let now_ms = at.now_ms();
        let mut standing = self.stored(stored, now_ms);
        standing = self.struck(standing, at.offence.strikes, now_ms);
        if at.offence.ban_ms > 0 {
            let until_ms = now_ms.saturating_add(at.offence.ban_ms).min(LAST_END_MS);
            if !self.is_banned(&standing) || until_ms > standing.mark {
                standing = self.ban(until_ms, standing.bans());
            }
        } else if at.offence.prolongs && self.prolongs && self.is_banned(&standing) {
            let length_ms = self.length_ms(standing.bans());
            let until_ms = now_ms.saturating_add(length_ms).min(LAST_END_MS);
            if until_ms > standing.mark {
                standing = self.ban(until_ms, standing.bans());
            }
        }
        standing
    }

    fn write(
        &self,
        stored: impl FnOnce() -> Option<State>,
        standing: &BucketState,
        change: Change,
        at: &ReadContext<'_>,
    ) -> State {
        let after = self.after(*standing, change, at);
        let words = if self.is_banned(&after) {
            [after.mark, 0, 0, after.bans()]
        } else {
            let stored = stored();
            let last_until_ms = stored.and_then(|words| words.first().copied());
            let last_until_ms = last_until_ms.filter(|_| after.bans() > 0);
            let last_until_ms = last_until_ms.unwrap_or(0);
            [last_until_ms, after.mark, after.level, after.bans()]
        };
        State::from_slice(&words)
    }

    fn drained_at_us(&self, state: &[u64]) -> u64 {
        let &[until_ms, ends_ms, _, bans] = state else {
            return 0;
        };
        let remembered_ms = if bans > 0 { self.forgiven_ms } else { 0 };
        let forgiven_at_ms = until_ms.saturating_add(remembered_ms);
        forgiven_at_ms.max(ends_ms).saturating_mul(1_000)
    }

    fn after(&self, standing: BucketState, change: Change, at: &ReadContext<'_>) -> BucketState {
        match change {
            Change::Take(strikes) => self.struck(standing, strikes, at.now_ms()),
            Change::Give(_) | Change::Renew => standing,
        }
    }

    fn retry_us(&self, standing: &BucketState, _: u64, now_us: u64) -> Option<u64> {
        Some(until_ms(standing.mark, now_us))
    }

    fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        until_ms(standing.mark, now_us)
    }

    /// When a ban or a window of strikes ends, no strike is left.
    #[cfg(feature = "redis")]
    fn later(
        &self,
        standing: BucketState,
        _: &ReadContext<'_>,
        at: &ReadContext<'_>,
    ) -> Option<BucketState> {
        Some(if standing.mark > at.now_ms() {
            standing
        } else {
            BucketState {
                level: 0,
                mark: 0,
                ..standing
            }
        })
    }

    /// A penalty has no shared cells, and gives nothing back.
    fn returnable(&self, _: Option<&[u64]>, _: &BucketState, _: u64, _: &ReadContext<'_>) -> u64 {
        0
    }
}
