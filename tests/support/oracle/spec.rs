//! What a policy can be, in plain numbers.

use std::time::Duration;

use tower_throttle::{
    Concurrency, ConfigError, FixedWindow, LeakyBucket, Penalty, Policy, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spec {
    Bucket {
        limit: u64,
        period_ns: u64,
        burst: u64,
        initial: u64,
        kind: Kind,
    },
    /// Refilled at once, or never if the limit is 0.
    Interval {
        limit: u64,
        period_ms: u64,
        burst: u64,
        initial: u64,
    },
    Window {
        limit: u64,
        window_ms: u64,
        start: Start,
        utc_offset_minutes: i32,
        spread: bool,
    },
    Sliding {
        limit: u64,
        window_ms: u64,
    },
    Log {
        limit: u64,
        window_ms: u64,
    },
    Concurrency {
        limit: u64,
        lifetime_ms: u64,
    },
    Penalty {
        after: u64,
        window_ms: u64,
        first_ms: u64,
        longest_ms: Option<u64>,
        forgiven_ms: Option<u64>,
        prolongs: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Token,
    Meter,
    Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    FirstUse,
    Aligned,
    Day,
    Week,
    Month,
}

pub const DAY_MS: u64 = 86_400_000;
/// One past the largest integer that Lua holds exactly.
const EXACT: i128 = 1 << 53;

impl Spec {
    pub fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { burst, .. } | Self::Interval { burst, .. } => burst,
            Self::Window { limit, .. }
            | Self::Sliding { limit, .. }
            | Self::Log { limit, .. }
            | Self::Concurrency { limit, .. } => limit,
            Self::Penalty { after, .. } => after,
        }
    }

    pub fn is_penalty(&self) -> bool {
        matches!(self, Self::Penalty { .. })
    }

    /// Returns the part of the capacity that a new caller lacks.
    pub fn missing_at_first(&self) -> u64 {
        match *self {
            Self::Bucket { burst, initial, .. } | Self::Interval { burst, initial, .. } => {
                burst - initial
            }
            _ => 0,
        }
    }

    pub fn is_spread(&self) -> bool {
        matches!(self, Self::Window { spread: true, .. })
    }

    /// Returns the unit of levels: the time in which one unit comes back, in nanoseconds, if
    /// units come back one after another.
    pub fn unit(&self) -> i128 {
        match *self {
            Self::Bucket {
                limit, period_ns, ..
            } => up(period_ns.into(), limit.max(1).into()),
            _ => 1,
        }
    }

    /// Returns the capacity as a level.
    pub fn depth(&self) -> i128 {
        self.unit() * i128::from(self.capacity())
    }

    /// Returns the highest level, with debts, that all arithmetic holds exactly.
    pub fn highest(&self) -> i128 {
        match *self {
            Self::Interval {
                limit: limit @ 1..,
                period_ms,
                ..
            } => (i128::from(limit) * (EXACT / i128::from(period_ms))).min(EXACT - 1_000),
            Self::Sliding { window_ms, .. } => (EXACT - 1) / (2 * i128::from(window_ms)),
            Self::Log { .. } => (1 << 40) - 1,
            Self::Concurrency { .. } | Self::Penalty { .. } => 0,
            Self::Bucket { .. } | Self::Interval { .. } | Self::Window { .. } => EXACT - 1_000,
        }
    }

    /// Buckets that are full before the clock's next tick count as full.
    pub fn slack(&self) -> i128 {
        match self {
            Self::Bucket { .. } => 999,
            _ => 0,
        }
    }

    /// Returns about how long it takes until all units are back, in microseconds.
    pub fn scale_us(&self) -> u64 {
        match *self {
            Self::Bucket { .. } => (self.depth() / 1_000).max(1) as u64,
            Self::Interval { period_ms, .. } => period_ms * 1_000,
            Self::Window { window_ms, .. }
            | Self::Sliding { window_ms, .. }
            | Self::Log { window_ms, .. } => window_ms * 1_000,
            Self::Concurrency { lifetime_ms, .. } => lifetime_ms * 1_000,
            Self::Penalty {
                window_ms,
                first_ms,
                ..
            } => window_ms.max(first_ms) * 1_000,
        }
    }
}

pub fn up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}

/// A policy without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub spec: Spec,
    pub cost: u64,
    /// `None`: the largest debt that the quota can have.
    pub debt: Option<u64>,
    /// Whether a denial by another policy is a strike.
    pub strikes: bool,
}

impl Plan {
    pub fn policy(&self, name: &str) -> Policy {
        let policy = Policy::new(name, self.quota());
        match (self.spec.is_penalty(), self.strikes, self.debt) {
            (true, true, _) => policy.strike_on_denial(),
            (true, false, _) => policy,
            (false, _, Some(debt)) => policy.cost(self.cost).max_debt(debt),
            (false, _, None) => policy.cost(self.cost),
        }
    }

    /// Returns what the builder of its algorithm makes.
    pub fn quota(&self) -> Quota {
        let ms = Duration::from_millis;
        let quota = match self.spec {
            Spec::Bucket {
                limit,
                period_ns,
                burst,
                initial,
                kind,
            } => {
                let period = Duration::from_nanos(period_ns);
                let bucket = TokenBucket::new(limit, period);
                let leaky = LeakyBucket::new(limit, period);
                match kind {
                    Kind::Token => bucket.burst(burst).initial(initial).try_into(),
                    Kind::Meter => leaky.capacity(burst).try_into(),
                    Kind::Queue => leaky.queue(burst.saturating_sub(1)).try_into(),
                }
            }
            Spec::Interval {
                limit,
                period_ms,
                burst,
                initial,
            } => match limit {
                0 => TokenBucket::without_refill(burst),
                _ => TokenBucket::new(limit, ms(period_ms))
                    .burst(burst)
                    .refill_at_once(),
            }
            .initial(initial)
            .try_into(),
            Spec::Window {
                limit,
                window_ms,
                start,
                utc_offset_minutes,
                spread,
            } => {
                let window = FixedWindow::new(limit, ms(window_ms));
                let window = match start {
                    Start::FirstUse => window,
                    Start::Aligned => window.aligned(),
                    Start::Day => FixedWindow::per_calendar_day(limit),
                    Start::Week => FixedWindow::per_calendar_week(limit),
                    Start::Month => FixedWindow::per_calendar_month(limit),
                };
                let window = window.utc_offset_minutes(utc_offset_minutes);
                if spread { window.spread() } else { window }.try_into()
            }
            Spec::Sliding { limit, window_ms } => {
                SlidingWindow::new(limit, ms(window_ms)).try_into()
            }
            Spec::Log { limit, window_ms } => SlidingLog::new(limit, ms(window_ms)).try_into(),
            Spec::Concurrency { limit, lifetime_ms } => {
                Concurrency::new(limit).lifetime(ms(lifetime_ms)).try_into()
            }
            Spec::Penalty {
                after,
                window_ms,
                first_ms,
                longest_ms,
                forgiven_ms,
                prolongs,
            } => {
                let mut penalty = Penalty::after(after).within(ms(window_ms));
                penalty = penalty.lasting(ms(first_ms));
                if let Some(longest_ms) = longest_ms {
                    penalty = penalty.doubling_up_to(ms(longest_ms));
                }
                if let Some(forgiven_ms) = forgiven_ms {
                    penalty = penalty.forgiven_after(ms(forgiven_ms));
                }
                if prolongs {
                    penalty = penalty.prolonging();
                }
                penalty.try_into()
            }
        };
        quota.unwrap_or_else(|error: ConfigError| panic!("{self:?}: {error}"))
    }

    /// Returns how far the level may exceed the depth.
    pub fn debt_level(&self) -> i128 {
        i128::from(self.debt.unwrap_or(self.most_debt())) * self.spec.unit()
    }

    pub fn most_debt(&self) -> u64 {
        let most = (self.spec.highest() - self.spec.depth()).max(0);
        (most / self.spec.unit()) as u64
    }
}
