//! How much: one type for each algorithm, and [`Quota`], which sums them.
//!
//! A quota type holds what the user said. Turning it into a [`Quota`] checks it
//! and works out the integers that deciding needs, once. The arithmetic beside
//! each algorithm is pure: it takes what is stored and `now`, and serves both
//! the memory store and, as the model, the tests of the Lua scripts.

mod fixed_window;
mod token_bucket;

use std::{fmt, time::Duration};

pub use self::{fixed_window::FixedWindow, token_bucket::TokenBucket};
use crate::ConfigError;

/// One past the largest integer that a Lua number holds exactly, with all below it.
pub(crate) const EXACT: u64 = 1 << 53;

/// Which algorithm a quota runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// [`TokenBucket`].
    TokenBucket,
    /// [`FixedWindow`].
    FixedWindow,
}

/// A checked quota of any algorithm: small, `Copy`, and always valid.
///
/// Made from [`TokenBucket`] and [`FixedWindow`] with `try_from`/`try_into`.
/// You need it by name only where a request chooses its quota
/// ([`RequestPolicy::quota_by`](crate::RequestPolicy::quota_by)): make the tiers
/// at start-up, where a mistake is an error, and hand out copies.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
///
/// let free: Quota = TokenBucket::per_minute(10).try_into()?;
/// let paid: Quota = TokenBucket::per_minute(600).burst(1_000).try_into()?;
/// assert_eq!((free.capacity(), paid.capacity()), (10, 1_000));
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota(pub(crate) Rule);

/// The integers that an algorithm decides with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    TokenBucket(token_bucket::Rule),
    FixedWindow(fixed_window::Rule),
}

/// What a store keeps for one bucket: two words, whose meaning the algorithm knows.
///
/// Token bucket: the instant at which it is full again, in nanoseconds since
/// the epoch, and 0. Fixed window: units used, and the window's end in
/// milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64, pub(crate) u64);

/// What is stored, read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// How much is taken, in the algorithm's own unit (nanoseconds of refill, or units).
    pub(crate) level: u64,
    /// When the current window ends, in milliseconds since the epoch; 0 where there is none.
    pub(crate) ends_ms: u64,
    /// Must be written even when nothing is charged: first sight of a caller
    /// who does not start full, or a stored time too far ahead.
    pub(crate) unsaved: bool,
}

impl Quota {
    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self.0 {
            Rule::TokenBucket(_) => Algorithm::TokenBucket,
            Rule::FixedWindow(_) => Algorithm::FixedWindow,
        }
    }

    /// Units per [`period`](Self::period): the rate as it was configured.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.limit,
            Rule::FixedWindow(rule) => rule.limit,
        }
    }

    /// The period of [`limit`](Self::limit).
    #[must_use]
    pub const fn period(&self) -> Duration {
        match &self.0 {
            Rule::TokenBucket(rule) => Duration::from_nanos(rule.period_ns),
            Rule::FixedWindow(rule) => Duration::from_millis(rule.window_ms),
        }
    }

    /// The most units that can be taken at once. A cost above it is
    /// [impossible](crate::Verdict::Impossible), whenever it is asked.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.burst,
            Rule::FixedWindow(rule) => rule.limit,
        }
    }

    pub(crate) fn capacity_level(&self) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.capacity_ns,
            Rule::FixedWindow(rule) => rule.limit,
        }
    }

    /// A cost as a level. At most [`EXACT`], which no capacity reaches.
    pub(crate) fn cost_level(&self, cost: u64) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => cost.saturating_mul(rule.interval_ns),
            Rule::FixedWindow(_) => cost,
        }
        .min(EXACT)
    }

    pub(crate) fn read(&self, stored: Option<State>, now_us: u64) -> Standing {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.read(stored, now_us),
            Rule::FixedWindow(rule) => rule.read(stored, now_us),
        }
    }

    pub(crate) fn state(&self, standing: Standing, now_us: u64) -> State {
        match &self.0 {
            Rule::TokenBucket(_) => token_bucket::state(standing, now_us),
            Rule::FixedWindow(_) => fixed_window::state(standing),
        }
    }

    /// The instant from which the stored state means the same as none.
    pub(crate) fn drained_at_us(&self, state: State) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.drained_at_us(state),
            Rule::FixedWindow(_) => fixed_window::drained_at_us(state),
        }
    }

    pub(crate) fn remaining(&self, level: u64) -> u64 {
        let left = self.capacity_level().saturating_sub(level);
        match &self.0 {
            Rule::TokenBucket(rule) => left / rule.interval_ns,
            Rule::FixedWindow(_) => left,
        }
    }

    /// Microseconds until nothing is taken any more.
    pub(crate) fn reset_us(&self, standing: Standing, now_us: u64) -> u64 {
        if standing.level == 0 {
            return 0;
        }
        match &self.0 {
            Rule::TokenBucket(_) => standing.level.div_ceil(1_000),
            Rule::FixedWindow(_) => fixed_window::until_end_us(standing, now_us),
        }
    }

    /// Whether `cost` more fits now.
    pub(crate) fn fits(&self, standing: Standing, cost: u64) -> bool {
        let (cost, capacity) = (self.cost_level(cost), self.capacity_level());
        cost <= capacity && (standing.level <= self.slack() || standing.level + cost <= capacity)
    }

    /// Microseconds until `cost` more fits; `None` if it never does.
    pub(crate) fn retry_us(&self, standing: Standing, cost: u64, now_us: u64) -> Option<u64> {
        if self.fits(standing, cost) {
            return Some(0);
        }
        let (cost, capacity) = (self.cost_level(cost), self.capacity_level());
        if cost > capacity {
            return None;
        }
        Some(match &self.0 {
            Rule::TokenBucket(_) => {
                let over = standing.level.saturating_sub(self.slack());
                over.min(standing.level + cost - capacity).div_ceil(1_000)
            }
            Rule::FixedWindow(_) => fixed_window::until_end_us(standing, now_us),
        })
    }

    /// A level that counts as none: less than a tick of the clock.
    const fn slack(&self) -> u64 {
        match &self.0 {
            Rule::TokenBucket(_) => token_bucket::SLACK_NS,
            Rule::FixedWindow(_) => 0,
        }
    }

    /// The time within which at most the remaining units may be used, for
    /// the `t` parameter of `RateLimit`: the larger of the time to the next
    /// unit and the remaining units at the sustained rate.
    pub(crate) fn effective_window_us(&self, standing: Standing, now_us: u64) -> u64 {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.effective_window_us(standing.level),
            Rule::FixedWindow(_) => fixed_window::until_end_us(standing, now_us),
        }
    }

    /// A name that says the quota, for a policy that was given none.
    pub(crate) fn to_name(self) -> String {
        let mut name = format!("{}-per-{}", self.limit(), period_name(self.period()));
        match &self.0 {
            Rule::TokenBucket(rule) => {
                if rule.burst != rule.limit {
                    name.push_str(&format!("-burst-{}", rule.burst));
                }
            }
            Rule::FixedWindow(rule) => {
                name.push_str(if rule.aligned { "-aligned" } else { "-window" });
            }
        }
        name
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::TokenBucket(rule) => rule.fmt(f),
            Rule::FixedWindow(rule) => rule.fmt(f),
        }
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
            /// So many a second.
            pub const fn per_second(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(1))
            }

            /// So many a minute.
            pub const fn per_minute(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(60))
            }

            /// So many an hour.
            pub const fn per_hour(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(3_600))
            }

            /// So many in 24 hours.
            pub const fn per_day(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(86_400))
            }
        }
    };
}
pub(crate) use per_period;
