//! One type for each algorithm, and [`Quota`], which holds any of them.
//!
//! A quota type holds the configuration. Its conversion into a [`Quota`] checks it, and
//! computes once the integers that a decision needs. The arithmetic of each algorithm is pure: it
//! gets the stored state and the time. The memory store uses it, and the tests of the Lua scripts
//! use it as the model.

pub(crate) mod arithmetic;
mod calendar;
pub(crate) mod concurrency;
pub(crate) mod fixed_window;
pub(crate) mod hold;
mod leaky_bucket;
mod levels;
pub(crate) mod penalty;
mod per_period;
mod properties;
mod share;
pub(crate) mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod statement;
mod text;
pub(crate) mod token_bucket;
pub(crate) mod window;

use std::time::Duration;

use self::per_period::per_period;
pub use self::{
    concurrency::Concurrency,
    fixed_window::FixedWindow,
    leaky_bucket::LeakyBucket,
    penalty::{Pause, Penalty},
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
    text::parse_duration,
    token_bucket::TokenBucket,
};
use crate::util::interned::{InternTable, Interned};

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
    /// [`Pause`].
    Pause,
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
/// | `fixed window of 100 per hour` | a [`FixedWindow`]; options: `aligned`, `utc offset +02:00`, `spread` |
/// | `fixed window of 100 per calendar day`, `week` or `month` | [`FixedWindow::per_calendar_day`] and its like; options: `utc offset +02:00`, `spread` |
/// | `sliding window of 100 per minute` | a [`SlidingWindow`] |
/// | `sliding log of 10 per hour` | a [`SlidingLog`]; option: `max entries 50000` |
/// | `20 at once` | a [`Concurrency`]; option: `lifetime 30 seconds` |
/// | `penalty after 20 strikes` | a [`Penalty`]; options: `within 10 minutes`, `lasting 5 minutes`, `doubling up to 24 hours`, `forgiven after 7 days`, `prolonging` |
///
/// - Options follow in any order, each at most once, with or without a comma. An option that is left
///   out has the default of the type.
/// - Other spellings of limits are read, too: `10/minute`, and `10 requests per minute`.
/// - Numbers are whole, and may be grouped: `1_000_000`.
/// - Times are a number and a unit: `nanosecond`, `microsecond`, `millisecond`, `second`, `minute`,
///   `hour`, `day` of 24 hours, `week` of 7 days, their plurals, or `ns`, `us`, `ms`, `s`, `sec`, `m`,
///   `min`, `h`, `d`, `w`. After `per`, the number may be left out.
/// - **A month is always one of the calendar**, and only a fixed window has a calendar. So
///   `1000000 per month` is the fixed window of `1000000 per calendar month`, in which all units come
///   back at its end. `1000000 per 30 days` is a token bucket.
/// - Case does not matter, nor does the kind and amount of space. Between two words, `_` and `-`
///   are spaces, so `refill_at_once` is an option, too.
/// - `token bucket of` may stand before the first two forms, and `concurrency of` before `20 at once`.
///
/// [`Display`](std::fmt::Display) writes what is not the default, in the order of the table. For a quota
/// that the types make, that text is read as an equal quota. For a share of a quota
/// ([`OnStoreFailure::share_of`](crate::OnStoreFailure::share_of)), it may round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
        }
    };
}
pub(crate) use each;

// Where algorithms differ, a `match` names all of them, so that none gets the answer of another
// by default: the compiler asks what a new one does. `properties.rs` has the other questions.
impl Quota {
    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.properties().algorithm
    }

    /// Returns whether a policy that gets the other quota in place of this one keeps its buckets,
    /// under the new numbers. If not, its callers start with new buckets: the algorithms differ, or
    /// only one of two token buckets [refills at once](TokenBucket::refill_at_once).
    ///
    /// ```
    /// use tower_throttle::Quota;
    ///
    /// let [ten, twenty, window] = ["10 per second", "20 per second", "fixed window of 10 per second"]
    ///     .map(|text| text.parse::<Quota>().unwrap());
    /// assert!(ten.shares_buckets_with(&twenty) && !ten.shares_buckets_with(&window));
    /// ```
    #[must_use]
    pub const fn shares_buckets_with(&self, other: &Self) -> bool {
        self.letter() == other.letter()
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
        }
    }

    /// Returns a pointer to it that is cheap to copy, for a policy.
    pub(crate) fn intern(self) -> Interned<Self> {
        static QUOTAS: InternTable<Quota> = InternTable::new();

        QUOTAS.intern(self)
    }
}
