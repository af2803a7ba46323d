//! The penalty, as users set it: bans of callers that misbehaved too often.

mod params;

use std::time::Duration;

use super::{
    EXACT, Params, Quota,
    window::{checked_window_ms, limit_too_large},
};
use crate::ConfigError;

pub(crate) use self::params::PenaltyParams;

/// Bans a caller after a number of strikes; repeat bans can last longer.
///
/// It charges no units: it denies requests of banned callers. Strikes come from responses
/// ([`Policy::settle_by`](crate::Policy::settle_by)), from denials by other policies
/// ([`Policy::strike_on_denial`](crate::Policy::strike_on_denial)), and from the application, by
/// [`Limiter::strike`](crate::Limiter::strike) or [`Buckets::strike`](crate::Buckets::strike).
/// [`Limiter::ban`](crate::Limiter::ban) bans by hand,
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
/// `after` strikes in one window starts the ban. When the ban ends, the count starts at 0. Callers
/// without strikes have no bucket, and their checks write nothing.
///
/// **During a ban** all requests are denied and no strikes are counted. So the ban ends at the time
/// of its `Retry-After`, whatever the caller does. [`prolonging`](Self::prolonging) changes that.
///
/// **The danger** is the key. If you ban by a name that others can write, such as a user name, they
/// can ban any user. If you ban by address, one caller behind a NAT bans all of them.
/// `docs/bans.md` shows better keys.
///
/// **Limits**, checked when the quota is used: times of whole milliseconds, up to 100 years; fewer
/// than 2<sup>53</sup> − 1 strikes.
///
/// **Changed numbers.** A running ban keeps its end. Strikes count until their window ends: at
/// its old end, or at the end of a window that starts now, whichever is sooner.
#[derive(Clone, Copy, Debug)]
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
    /// Bans a caller for ten minutes after `strikes` strikes within ten minutes.
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

    /// Sets the time without a ban after which the next ban is as short as the first. The time
    /// starts when a ban ends. Default: as long as the longest ban.
    pub const fn forgiven_after(mut self, peace: Duration) -> Self {
        self.forgiven_after = Some(peace);
        self
    }

    /// Restarts a ban with each request and each strike during it. Default: a ban keeps its end.
    ///
    /// **The danger**: a client that retries in a loop stays banned indefinitely.
    ///
    /// Redis does not see requests that are denied from a
    /// [cached denial](crate::RedisStoreBuilder::denial_cache_ttl): such a ban may end up to that
    /// time early.
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
            return Err(ConfigError::zero("Penalty::after"));
        }
        // The highest level is two higher.
        if after >= EXACT - 1 {
            return Err(limit_too_large(after));
        }
        let (window_ms, first_ms) = (checked_window_ms(within)?, checked_window_ms(lasting)?);
        let (longest_ms, forgiven_ms) = match (longest, forgiven_after) {
            (None, None) => (first_ms, 0),
            (None, Some(_)) => {
                return Err(ConfigError::new(
                    "nothing-to-forgive",
                    "`forgiven_after(..)` without `doubling_up_to(..)`, where all bans are equally long; drop it, or double the bans",
                ));
            }
            (Some(longest), forgiven_after) => {
                if longest < lasting {
                    let message = format!(
                        "`doubling_up_to({longest:?})` is shorter than the first ban, `lasting({lasting:?})`; raise it, or drop it"
                    );
                    return Err(ConfigError::new("longest-ban-too-short", message));
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
            pauses: false,
        })))
    }
}

/// The quota of a ban of a control document.
pub(crate) static BAN: Quota = Quota(Params::Penalty(PenaltyParams::BY_HAND));

/// Returns a time in milliseconds, rounded up, and at least one.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    let ms = time.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

/// Denies a key while it is [paused](crate::Limiter::pause): for calls to a partner who asks for a
/// pause with `Retry-After`.
///
/// Callers that [wait](crate::Limiter::acquire) wait for the end of a pause. Those that wait for
/// another policy beside it are stopped, too: when their turn comes, they ask the store once more, and
/// wait again if the key was paused meanwhile. So a pause stops the waiters of a whole fleet.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_throttle::{LeakyBucket, Limiter, MemoryStore, Pause, Policy};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let calls = Limiter::builder()
///     .store(MemoryStore::new()) // in a fleet, a `RedisStore`
///     .policy(Policy::new("partner-pace", LeakyBucket::per_second(20).queue(100)))
///     .policy(Policy::new("partner-pauses", Pause))
///     .build()?;
///
/// // The partner asked for a pause.
/// let pause = Duration::from_millis(100);
/// let paused_at = Instant::now();
/// calls.pause("partner", pause).await?;
/// assert!(calls.acquire("partner", Duration::from_secs(10)).await?.is_allowed());
/// assert!(paused_at.elapsed() >= pause);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// It admits everything else, takes no units, and appears in header fields only while it denies. Keys without a pause
/// have no bucket. Where a caller has to wait, its admission costs one more call to the store, and
/// only with such a policy. The units that it took before the pause are refunded, except those of the
/// place that it waited for: nobody can use that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause;

impl TryFrom<Pause> for Quota {
    type Error = ConfigError;

    fn try_from(_: Pause) -> Result<Self, ConfigError> {
        Ok(Self(Params::Penalty(PenaltyParams {
            pauses: true,
            ..PenaltyParams::BY_HAND
        })))
    }
}
