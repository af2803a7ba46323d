//! One type for each algorithm, and [`Quota`], which holds any of them.
//!
//! A quota type holds the configuration. Its conversion into a [`Quota`] checks it, and
//! computes once the integers that a decision needs. The arithmetic beside each algorithm
//! is pure: it gets the stored state and the time. The memory store uses it, and so do the
//! tests of the Lua scripts, as the model.

pub(crate) mod arithmetic;
mod calendar;
pub(crate) mod concurrency;
pub(crate) mod fixed_window;
pub(crate) mod hold;
mod leaky_bucket;
pub(crate) mod penalty;
mod share;
pub(crate) mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod statement;
mod text;
pub(crate) mod token_bucket;
pub(crate) mod window;

use std::{fmt, time::Duration};

use self::{
    arithmetic::{Arithmetic, BucketState},
    window::Start,
};
pub use self::{
    concurrency::Concurrency, fixed_window::FixedWindow, leaky_bucket::LeakyBucket,
    penalty::Penalty, sliding_log::SlidingLog, sliding_window::SlidingWindow,
    token_bucket::TokenBucket,
};
use crate::{
    ConfigError,
    util::interned::{InternTable, Interned},
};

/// One past the largest integer that a Lua number holds exactly, with all below it.
pub(crate) const EXACT: u64 = 1 << 53;

/// Which algorithm a quota runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// [`TokenBucket`].
    TokenBucket,
    /// [`LeakyBucket`].
    LeakyBucket,
    /// [`FixedWindow`].
    FixedWindow,
    /// [`SlidingWindow`].
    SlidingWindow,
    /// [`SlidingLog`].
    SlidingLog,
    /// [`Concurrency`].
    Concurrency,
    /// [`Penalty`].
    Penalty,
    /// What requests hold of a bucket until they are settled ([`Policy::hold_for`]). Only a
    /// [`Store`](crate::store::Store) meets it: it is the algorithm of a bucket beside that of a
    /// policy.
    ///
    /// [`Policy::hold_for`]: crate::Policy::hold_for
    Hold,
}

/// A checked quota of any algorithm: small, `Copy`, and always valid.
///
/// `try_from` and `try_into` create it from the type of an algorithm, such as
/// [`TokenBucket`] or [`FixedWindow`]. You need its name only if a request chooses its quota
/// ([`Policy::quota_by`](crate::Policy::quota_by)): create the tiers at start-up, where a
/// mistake is an error, and return copies.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
///
/// let free: Quota = TokenBucket::per_minute(10).try_into()?;
/// let paid: Quota = TokenBucket::per_minute(600).burst(1_000).try_into()?;
/// assert_eq!((free.capacity(), paid.capacity()), (10, 1_000));
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # As text
///
/// A quota is read from text and written as text, in the words of the algorithms' types:
///
/// ```
/// use tower_throttle::{Policy, Quota, TokenBucket};
///
/// let quota: Quota = "10 per second, burst 20".parse()?;
/// assert_eq!(quota, TokenBucket::per_second(10).burst(20).try_into()?);
/// assert_eq!(quota.to_string(), "10 per second, burst 20");
/// let policy = Policy::new("api", "10 per second, burst 20");
///
/// let error = "10 per secnd".parse::<Quota>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"quota "10 per secnd": no unit "secnd"; did you mean "second"?"#
/// );
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// | text | is |
/// |---|---|
/// | `10 per second`, `10 per 5 minutes` | a [`TokenBucket`]; options: `burst 20`, `initial 5`, `refill at once` |
/// | `5 without refill` | [`TokenBucket::without_refill`]; option: `initial 2` |
/// | `leaky bucket of 10 per second` | a [`LeakyBucket`]; options: `capacity 20` or `queue 20` |
/// | `fixed window of 100 per hour` | a [`FixedWindow`]; options: `aligned`, `spread` |
/// | `fixed window of 100 per calendar day`, `week` or `month` | [`FixedWindow::per_calendar_day`] and its like; option: `spread` |
/// | `sliding window of 100 per minute` | a [`SlidingWindow`] |
/// | `sliding log of 10 per hour` | a [`SlidingLog`]; option: `max entries 50000` |
/// | `20 at once` | a [`Concurrency`]; option: `lifetime 30 seconds` |
/// | `penalty after 20 strikes` | a [`Penalty`]; options: `within 10 minutes`, `lasting 5 minutes`, `doubling up to 24 hours`, `forgiven after 7 days`, `prolonging` |
///
/// - Each option follows a comma, in any order, at most once. What is left out has the default of
///   the type. `within` needs no comma.
/// - Numbers are whole, and may be grouped: `1_000_000`.
/// - Times are a number and a unit: `nanosecond`, `microsecond`, `millisecond`, `second`, `minute`,
///   `hour`, `day` of 24 hours, `week` of 7 days, their plurals, or `ns`, `us`, `ms`, `s`, `sec`, `m`,
///   `min`, `h`, `d`, `w`. After `per`, the number may be left out.
/// - **A month is always one of the calendar**, and only a fixed window has a calendar. So
///   `1000000 per month` is the fixed window of `1000000 per calendar month`, in which all units come
///   back at its end. `1000000 per 30 days` is a token bucket.
/// - Upper and lower case are equal, and so is any space. Between two words, `_` and `-` are spaces,
///   so `refill_at_once` is an option, too.
/// - `token bucket of` may stand before the first two forms, and `concurrency of` before `20 at once`.
///
/// [`Display`](fmt::Display) writes what is not the default, in the order of the table. Of what the
/// types make, that text is read as an equal quota. Of a share of a quota
/// ([`OnStoreFailure::share_of`](crate::OnStoreFailure::share_of)), it may round.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota(pub(crate) Params);

/// The integers that an algorithm decides with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Params {
    TokenBucket(token_bucket::TokenBucketParams),
    /// A token bucket that is refilled at once, or never.
    IntervalBucket(window::WindowParams),
    LeakyBucket {
        rule: token_bucket::TokenBucketParams,
        /// Whether admitted requests are held until their turn.
        paces: bool,
    },
    FixedWindow(window::WindowParams),
    SlidingWindow(sliding_window::SlidingWindowParams),
    SlidingLog(sliding_log::SlidingLogParams),
    Concurrency(concurrency::ConcurrencyParams),
    Penalty(penalty::PenaltyParams),
    Hold(hold::HoldParams),
}

/// Evaluates an expression with the parameters of whichever algorithm the quota has.
macro_rules! each {
    ($self:expr, $rule:ident => $answer:expr) => {
        match &$self.0 {
            Params::TokenBucket($rule) | Params::LeakyBucket { rule: $rule, .. } => $answer,
            Params::IntervalBucket($rule) | Params::FixedWindow($rule) => $answer,
            Params::SlidingWindow($rule) => $answer,
            Params::SlidingLog($rule) => $answer,
            Params::Concurrency($rule) => $answer,
            Params::Penalty($rule) => $answer,
            Params::Hold($rule) => $answer,
        }
    };
}
pub(crate) use each;

// Where algorithms differ, a `match` names all of them, so that none gets the answer of another
// by default: the compiler asks what a new one does.
impl Quota {
    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self.0 {
            Params::TokenBucket(_) | Params::IntervalBucket(_) => Algorithm::TokenBucket,
            Params::LeakyBucket { .. } => Algorithm::LeakyBucket,
            Params::FixedWindow(_) => Algorithm::FixedWindow,
            Params::SlidingWindow(_) => Algorithm::SlidingWindow,
            Params::SlidingLog(_) => Algorithm::SlidingLog,
            Params::Concurrency(_) => Algorithm::Concurrency,
            Params::Penalty(_) => Algorithm::Penalty,
            Params::Hold(_) => Algorithm::Hold,
        }
    }

    /// Returns the units per [`period`](Self::period): the rate as it was configured. For
    /// [`Concurrency`], these are units at a time, and for [`Penalty`], strikes.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match &self.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => rule.limit,
            Params::IntervalBucket(window::WindowParams {
                refill: Some(refill),
                ..
            }) => *refill,
            Params::IntervalBucket(rule) | Params::FixedWindow(rule) => rule.limit,
            Params::SlidingWindow(rule) => rule.limit,
            Params::SlidingLog(rule) => rule.limit,
            Params::Concurrency(rule) => rule.limit,
            Params::Penalty(rule) => rule.after,
            Params::Hold(_) => EXACT - 1,
        }
    }

    /// Returns the period of [`limit`](Self::limit). For [`Concurrency`], it is the lifetime
    /// of a permit, and for [`Penalty`], the window in which strikes are counted.
    #[must_use]
    pub const fn period(&self) -> Duration {
        match &self.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => {
                Duration::from_nanos(rule.period_ns)
            }
            Params::IntervalBucket(rule) | Params::FixedWindow(rule) => {
                Duration::from_millis(rule.window_ms)
            }
            Params::SlidingWindow(rule) => Duration::from_millis(rule.window_ms),
            Params::SlidingLog(rule) => Duration::from_micros(rule.window_us),
            Params::Concurrency(rule) => Duration::from_millis(rule.lifetime_ms),
            Params::Penalty(rule) => Duration::from_millis(rule.window_ms),
            Params::Hold(rule) => Duration::from_millis(rule.lifetime_ms),
        }
    }

    /// Returns the most units that can be taken at once. A higher cost is always
    /// [impossible](crate::Verdict::Impossible). For [`Penalty`], the strikes that are a ban.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match &self.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => rule.burst,
            Params::IntervalBucket(rule) | Params::FixedWindow(rule) => rule.limit,
            Params::SlidingWindow(rule) => rule.limit,
            Params::SlidingLog(rule) => rule.limit,
            Params::Concurrency(rule) => rule.limit,
            Params::Penalty(rule) => rule.after,
            Params::Hold(_) => EXACT - 1,
        }
    }

    /// Returns a pointer to it that is cheap to copy, for a policy.
    pub(crate) fn intern(self) -> Interned<Self> {
        static QUOTAS: InternTable<Quota> = InternTable::new();

        QUOTAS.intern(self)
    }

    /// Returns the letter of the form of state, so that state of one form is never read as
    /// another.
    pub(crate) const fn letter(&self) -> u8 {
        match self.0 {
            Params::TokenBucket(_) => b'b',
            Params::IntervalBucket(_) => b'i',
            Params::LeakyBucket { .. } => b'l',
            Params::FixedWindow(_) => b'w',
            Params::SlidingWindow(_) => b's',
            Params::SlidingLog(_) => b'g',
            Params::Concurrency(_) => b'c',
            Params::Penalty(_) => b'x',
            Params::Hold(_) => b'h',
        }
    }

    /// Returns whether units are held while a request is in flight, and then released.
    pub(crate) const fn is_concurrency(&self) -> bool {
        match self.0 {
            Params::Concurrency(_) => true,
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Penalty(_)
            | Params::Hold(_) => false,
        }
    }

    /// Returns whether it counts what requests hold of another bucket.
    pub(crate) const fn is_hold(&self) -> bool {
        matches!(self.0, Params::Hold(_))
    }

    /// Returns whether requests may hold units of a bucket with this quota.
    pub(crate) const fn may_hold(&self) -> bool {
        !self.is_concurrency() && !self.is_hold() && !self.paces() && self.penalty().is_none()
    }

    /// Returns the penalty, if it counts strikes and not units.
    pub(crate) const fn penalty(&self) -> Option<&penalty::PenaltyParams> {
        match &self.0 {
            Params::Penalty(rule) => Some(rule),
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Hold(_) => None,
        }
    }

    pub(crate) const fn permit_lifetime(&self) -> Option<Duration> {
        match &self.0 {
            Params::Concurrency(rule) => Some(Duration::from_millis(rule.lifetime_ms)),
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Penalty(_)
            | Params::Hold(_) => None,
        }
    }

    /// Returns the milliseconds after which a full bucket is empty, without debts. At most those of
    /// a year, after which nobody remembers what a process held that died.
    pub(crate) fn drained_after_ms(&self) -> u64 {
        const YEAR_MS: u64 = 366 * 86_400_000;

        let drained_after_ms = match &self.0 {
            Params::TokenBucket(rule) | Params::LeakyBucket { rule, .. } => {
                rule.capacity_ns / 1_000_000 + 1
            }
            Params::FixedWindow(rule) | Params::IntervalBucket(rule) => match rule.refill {
                None => rule.window_ms,
                Some(0) => YEAR_MS,
                Some(refill) => rule.window_ms.saturating_mul(rule.limit.div_ceil(refill)),
            },
            Params::SlidingWindow(rule) => 2 * rule.window_ms,
            Params::SlidingLog(rule) => rule.window_us / 1_000 + 1,
            Params::Concurrency(_) | Params::Penalty(_) | Params::Hold(_) => 0,
        };
        drained_after_ms.min(YEAR_MS)
    }

    /// Returns the room beyond the capacity, limited so that all levels stay exact.
    pub(crate) fn extra(&self, level: u64) -> u64 {
        let highest = each!(self, rule => rule.highest());
        level.min(highest.saturating_sub(self.level_of_capacity()))
    }

    /// Returns the most units that may be owed. Permits are held, so it is 0 for those.
    pub(crate) fn most_debt(&self) -> u64 {
        match self.0 {
            Params::Concurrency(_) | Params::Penalty(_) | Params::Hold(_) => 0,
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_) => self.units_of(self.extra(u64::MAX)),
        }
    }

    /// Returns whether an admitted request may have to wait for its turn.
    pub(crate) const fn paces(&self) -> bool {
        match self.0 {
            Params::LeakyBucket { paces, .. } => paces,
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => false,
        }
    }

    /// Returns whether a place can be reserved ahead of time, because units come back one by
    /// one.
    pub(crate) const fn reserves(&self) -> bool {
        match self.0 {
            Params::TokenBucket(_) | Params::LeakyBucket { .. } => true,
            Params::IntervalBucket(_)
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => false,
        }
    }

    /// Returns whether all units of a window come back at one instant.
    pub(crate) const fn returns_at_once(&self) -> bool {
        match self.0 {
            Params::FixedWindow(_) | Params::IntervalBucket(_) => true,
            Params::TokenBucket(_)
            | Params::LeakyBucket { .. }
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => false,
        }
    }

    /// Returns whether units may be leased.
    pub(crate) const fn leases(&self) -> bool {
        match self.algorithm() {
            Algorithm::TokenBucket => true,
            Algorithm::LeakyBucket
            | Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingLog
            | Algorithm::Concurrency
            | Algorithm::Penalty
            | Algorithm::Hold => false,
        }
    }

    /// Returns the room beyond the capacity for a reservation whose time comes within
    /// `wait`. It is negative if the turn in a queue must come by then.
    pub(crate) fn room_for_wait(&self, level: u64, wait: Duration, is_turn_bound: bool) -> i64 {
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let capacity = self.level_of_capacity();
        let signed = |level: u64| i64::try_from(level).unwrap_or(i64::MAX);
        // A cost above the capacity never fits, however long the caller waits.
        if level > capacity {
            return 0;
        }
        match &self.0 {
            Params::LeakyBucket { paces: true, .. } if is_turn_bound => {
                let bound = level.saturating_add(wait_ns).min(capacity);
                -signed(capacity - bound)
            }
            Params::LeakyBucket { paces: true, .. } => 0,
            Params::TokenBucket(_) | Params::LeakyBucket { paces: false, .. } => {
                signed(self.extra(wait_ns))
            }
            Params::IntervalBucket(_)
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => 0,
        }
    }

    /// Returns how much later this caller's windows start than those of others.
    #[inline]
    pub(crate) fn offset_ms(&self, key: &[u8]) -> u64 {
        match &self.0 {
            Params::FixedWindow(rule) | Params::IntervalBucket(rule) => match rule.spread {
                true => rule.spread_ms(key),
                false => 0,
            },
            Params::TokenBucket(_)
            | Params::LeakyBucket { .. }
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => 0,
        }
    }

    /// Returns the quota for callers that share a bucket, if it differs. If each caller's
    /// windows start at an instant of its own, a shared window ends after all of them.
    pub(crate) fn of_newcomers(&self) -> Option<Self> {
        match self.0 {
            Params::FixedWindow(rule) => {
                let shared = window::WindowParams {
                    start: Start::FirstUse,
                    spread: false,
                    ..rule
                };
                rule.spread.then_some(Self(Params::FixedWindow(shared)))
            }
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::SlidingWindow(_)
            | Params::SlidingLog(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => None,
        }
    }

    /// Returns in how many shared buckets a caller's units are counted. A log is counted in
    /// one, because each bucket would keep all of its entries.
    pub(crate) const fn shared_rows(&self) -> usize {
        match self.0 {
            Params::SlidingLog(_) => 1,
            Params::TokenBucket(_)
            | Params::IntervalBucket(_)
            | Params::LeakyBucket { .. }
            | Params::FixedWindow(_)
            | Params::SlidingWindow(_)
            | Params::Concurrency(_)
            | Params::Penalty(_)
            | Params::Hold(_) => 2,
        }
    }

    /// Returns a cost as a level. At most [`EXACT`], which no capacity reaches.
    pub(crate) fn level_of(&self, units: u64) -> u64 {
        each!(self, rule => units.saturating_mul(rule.unit())).min(EXACT)
    }

    /// Returns the level at which nothing more fits.
    pub(crate) fn level_of_capacity(&self) -> u64 {
        each!(self, rule => rule.capacity())
    }

    /// Returns the whole units in a level.
    pub(crate) fn units_of(&self, level: u64) -> u64 {
        each!(self, rule => level / rule.unit())
    }

    pub(crate) fn remaining(&self, level: u64) -> u64 {
        each!(self, rule => rule.units_that_fit(level))
    }

    /// Returns whether less than a fifth of the capacity is left at this level.
    pub(crate) fn is_nearly_used(&self, level: u64) -> bool {
        each!(self, rule => rule.is_nearly_used(level))
    }

    /// Returns the bucket after this level was taken.
    #[cfg(feature = "http")]
    pub(crate) fn after(&self, standing: BucketState, taken: u64, now_us: u64) -> BucketState {
        let at = arithmetic::ReadContext {
            now_us,
            ..arithmetic::ReadContext::default()
        };
        let change = arithmetic::Change::Take(taken);
        each!(self, rule => rule.after(standing, change, &at))
    }

    /// Returns the microseconds until nothing is taken anymore.
    pub(crate) fn reset_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        if standing.level == 0 {
            return 0;
        }
        each!(self, rule => rule.reset_us(standing, now_us))
    }

    pub(crate) fn effective_window_us(&self, standing: &BucketState, now_us: u64) -> u64 {
        each!(self, rule => rule.effective_window_us(standing, now_us))
    }

    /// Returns a name that describes the quota, for a policy without one.
    pub(crate) fn to_name(self) -> String {
        let (limit, period) = (self.limit(), period_name(self.period()));
        let capacity = self.capacity();
        match &self.0 {
            Params::TokenBucket(rule) if rule.burst == rule.limit => {
                format!("{limit}-per-{period}")
            }
            Params::TokenBucket(_) => format!("{limit}-per-{period}-burst-{capacity}"),
            Params::IntervalBucket(rule) if rule.refill == Some(0) => format!("{capacity}-by-hand"),
            Params::IntervalBucket(_) => {
                format!("{limit}-per-{period}-at-once-burst-{capacity}")
            }
            Params::LeakyBucket { paces: false, .. } => {
                format!("{limit}-per-{period}-leaky-{capacity}")
            }
            Params::LeakyBucket { paces: true, .. } => {
                format!("{limit}-per-{period}-queue-{}", capacity.saturating_sub(1))
            }
            Params::FixedWindow(rule) => {
                let start = match rule.start {
                    Start::FirstUse => "window",
                    Start::Aligned { offset_ms: 0 } => "aligned",
                    Start::Aligned { .. } | Start::Month => "calendar",
                };
                let spread = if rule.spread { "-spread" } else { "" };
                format!("{limit}-per-{period}-{start}{spread}")
            }
            Params::SlidingWindow(_) => format!("{limit}-per-{period}-sliding"),
            Params::SlidingLog(_) => format!("{limit}-per-{period}-log"),
            Params::Concurrency(_) => format!("{limit}-at-a-time"),
            Params::Penalty(_) => format!("{limit}-strikes-per-{period}"),
            Params::Hold(_) => "held".to_owned(),
        }
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<std::convert::Infallible> for ConfigError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

fn period_name(period: Duration) -> String {
    match period.as_nanos() {
        1_000_000_000 => "second".to_owned(),
        60_000_000_000 => "minute".to_owned(),
        3_600_000_000_000 => "hour".to_owned(),
        86_400_000_000_000 => "day".to_owned(),
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

/// The constructors that every rate has. `$new` takes the limit and the period.
macro_rules! per_period {
    ($type:ident) => {
        impl $type {
            /// Allows `limit` units per second.
            pub const fn per_second(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(1))
            }

            /// Allows `limit` units per minute.
            pub const fn per_minute(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(60))
            }

            /// Allows `limit` units per hour.
            pub const fn per_hour(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(3_600))
            }

            /// Allows `limit` units per 24 hours.
            pub const fn per_day(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(86_400))
            }
        }
    };
}
pub(crate) use per_period;
