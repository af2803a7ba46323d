//! Mistakes seen at build time.

use std::{error::Error, fmt, time::Duration};

/// A mistake in what was configured, seen before the first request.
///
/// The message says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A period or window of no time.
    ZeroPeriod,
    /// More than 1,000,000 a second.
    RateTooHigh {
        /// Tokens per period.
        limit: u64,
        /// The period.
        period: Duration,
    },
    /// A bucket that takes 2^53 nanoseconds (104 days) or more to fill.
    BucketTooDeep {
        /// Tokens per period.
        limit: u64,
        /// The period.
        period: Duration,
    },
    /// A burst beside a limit of 0, which refuses everything.
    /// ([`without_refill`](crate::TokenBucket::without_refill) means a bucket that
    /// nothing flows into.)
    BurstWithoutRefill {
        /// The burst.
        burst: u64,
    },
    /// More initial tokens than the bucket holds.
    InitialAboveBurst {
        /// The tokens that a new caller would have.
        initial: u64,
        /// What the bucket holds.
        burst: u64,
    },
    /// A window with a fraction of a millisecond.
    WindowNotWholeMilliseconds {
        /// The window.
        window: Duration,
    },
    /// A window of more than 100 years.
    WindowTooLong {
        /// The window.
        window: Duration,
    },
    /// A limit of 2^53 or more.
    LimitTooLarge {
        /// The limit.
        limit: u64,
    },
    /// A limit and a window whose product is too large to work with exactly.
    WindowTooLarge {
        /// The limit.
        limit: u64,
        /// The window.
        window: Duration,
    },
    /// More entries than one key may hold.
    LogTooLarge {
        /// The limit.
        limit: u64,
        /// The most that are allowed.
        most: u64,
    },
    /// A debt that cannot be counted exactly, or one of a quota that has none.
    DebtTooLarge {
        /// The most that may be owed.
        debt: u64,
        /// The highest that it may be.
        most: u64,
    },
    /// More permits than one key may hold.
    TooManyPermits {
        /// The limit.
        limit: u64,
        /// The most that are allowed.
        most: u64,
    },
    /// A lifetime in which a permit cannot be renewed.
    LifetimeTooShort {
        /// The lifetime.
        lifetime: Duration,
    },
    /// A spread over windows that start with each caller's first request.
    SpreadWithoutStart,
    /// No policy at all.
    NoPolicies,
    /// A policy name that is empty, longer than 64 bytes or not printable ASCII.
    PolicyName {
        /// The name.
        name: String,
    },
    /// Two policies of one name.
    DuplicatePolicy {
        /// The name.
        name: String,
    },
    /// A fixed cost that the quota can never grant.
    CostAboveCapacity {
        /// The cost.
        cost: u64,
        /// The most that can be taken at once.
        capacity: u64,
    },
    /// A policy that is shared by all callers and has a key for each.
    SharedAndKeyed,
    /// Units paid for in advance beside what cannot be right with them.
    CannotLease {
        /// What that is.
        beside: &'static str,
    },
    /// A mistake inside the policy of this name.
    InPolicy {
        /// The policy's name.
        name: String,
        /// The mistake.
        mistake: Box<Self>,
    },
    /// A trusted proxy that is neither an address nor a CIDR range.
    TrustedProxy {
        /// What was given.
        text: String,
    },
    /// The trusted proxies match every client: all public addresses of IPv4 or IPv6, or
    /// all of IPv4 behind a translator.
    TrustsEverybody {
        /// The range, or all ranges that do so together.
        text: String,
    },
    /// A forwarding header to read, and nobody trusted to write it.
    NoTrustedProxies,
    /// Not a header name.
    HeaderName {
        /// What was given.
        name: String,
    },
    /// Not a cookie name.
    CookieName {
        /// What was given.
        name: String,
    },
    /// An IPv6 prefix outside 1 to 128.
    Ipv6Prefix {
        /// What was given.
        bits: u8,
    },
    /// A Redis URL that cannot be used.
    RedisUrl {
        /// Why.
        reason: String,
    },
    /// A key prefix with braces or unprintable bytes, or longer than 64 bytes.
    KeyPrefix {
        /// What was given.
        prefix: String,
    },
    /// Partition keys, and header fields in which there is no place for them.
    PartitionKeyWithoutLists,
    /// A number or duration of zero, or an empty secret.
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
    /// The store needs a Tokio runtime to connect in.
    NoRuntime,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroPeriod => f.write_str("a period of zero: give one longer than that"),
            Self::RateTooHigh { limit, period } => write!(
                f,
                "{limit} per {period:?} is more than 1,000,000 a second: lower the limit, or give each request a higher cost in a smaller unit",
            ),
            Self::BucketTooDeep { limit, period } => write!(
                f,
                "at {limit} per {period:?} this bucket takes 104 days or more to fill: lower the burst, or use a FixedWindow",
            ),
            Self::BurstWithoutRefill { burst } => write!(
                f,
                "a capacity of {burst} with a limit of 0, which refuses everything: set a limit, drop the capacity, or use `TokenBucket::without_refill({burst})`",
            ),
            Self::InitialAboveBurst { initial, burst } => write!(
                f,
                "{initial} initial tokens in a bucket of {burst}: raise the burst or lower the initial tokens",
            ),
            Self::WindowNotWholeMilliseconds { window } => {
                write!(f, "a window of {window:?}: use whole milliseconds")
            }
            Self::WindowTooLong { window } => {
                write!(f, "a window of {window:?}: at most 100 years")
            }
            Self::LimitTooLarge { limit } => {
                write!(f, "a limit of {limit}: use one below 2^53")
            }
            Self::WindowTooLarge { limit, window } => write!(
                f,
                "a limit of {limit} in a sliding window of {window:?}: four times the limit times the window in milliseconds must be below 2^53; lower one of them, or use a FixedWindow",
            ),
            Self::LogTooLarge { limit, most } => write!(
                f,
                "a SlidingLog limit of {limit} exceeds the maximum of {most} entries; use a SlidingWindow, or raise `max_entries(..)`",
            ),
            Self::DebtTooLarge { debt, most: 0 } => write!(
                f,
                "`max_debt({debt})` on a quota that cannot be in debt; drop `max_debt(..)`",
            ),
            Self::DebtTooLarge { debt, most } => write!(
                f,
                "`max_debt({debt})` exceeds the maximum of {most} units; lower it",
            ),
            Self::TooManyPermits { limit, most } => write!(
                f,
                "{limit} in flight under one key, where {most} are the most: lower the limit, or key it by more than that",
            ),
            Self::LifetimeTooShort { lifetime } => write!(
                f,
                "a lifetime of {lifetime:?}, in a third of which a permit is to be renewed: give it 100 ms or more",
            ),
            Self::SpreadWithoutStart => f.write_str(
                "a spread over windows that start with the first request: those are spread already; call `aligned()` first, or drop `spread()`",
            ),
            Self::NoPolicies => f.write_str("no policy: add at least one with `policy(..)`"),
            Self::PolicyName { name } => write!(
                f,
                "the policy name {name:?}: use 1 to 64 printable ASCII characters",
            ),
            Self::DuplicatePolicy { name } => write!(
                f,
                "two policies named {name:?}: they would share their buckets; rename one",
            ),
            Self::CostAboveCapacity { cost, capacity } => write!(
                f,
                "a cost of {cost} where at most {capacity} can ever be taken at once: lower the cost or raise the quota",
            ),
            Self::SharedAndKeyed => {
                f.write_str("shared by all callers and keyed by each: drop `shared()` or `key(..)`")
            }
            Self::CannotLease { beside } => write!(
                f,
                "units that are paid for in advance, beside {beside}: they are for a TokenBucket without debts whose callers do not wait; drop `lease_with_extra_burst()`, or that",
            ),
            Self::InPolicy { name, mistake } => write!(f, "policy {name:?}: {mistake}"),
            Self::TrustedProxy { text } => write!(
                f,
                "trusted proxy {text:?} is no address and no CIDR range; name it as \"10.0.0.7\" or \"10.0.0.8/30\"",
            ),
            Self::TrustsEverybody { text } => write!(
                f,
                "trusted proxies {text:?} match every client's address, so each client could spoof its own; name the addresses of your proxies",
            ),
            Self::NoTrustedProxies => f.write_str(
                "a client address behind no trusted proxy: name the proxies, or use `key::peer()`",
            ),
            Self::HeaderName { name } => write!(f, "{name:?} is not a header name"),
            Self::CookieName { name } => write!(f, "{name:?} is not a cookie name"),
            Self::Ipv6Prefix { bits } => {
                write!(f, "an IPv6 prefix of {bits} bits: use 1 to 128")
            }
            Self::RedisUrl { reason } => write!(f, "the Redis URL: {reason}"),
            Self::KeyPrefix { prefix } => write!(
                f,
                "the key prefix {prefix:?}: use 1 to 64 printable ASCII characters without braces",
            ),
            Self::PartitionKeyWithoutLists => f.write_str(
                "`partition_key(..)` beside header fields that have no place for it: use `Headers::Draft10`, or leave it out",
            ),
            Self::Zero { setting } => {
                write!(
                    f,
                    "`{setting}` is zero or empty: give it a value, or leave it out where there is a default"
                )
            }
            Self::NoRuntime => {
                f.write_str("no Tokio runtime here to connect in: build the store inside one")
            }
        }
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InPolicy { mistake, .. } => Some(mistake),
            _ => None,
        }
    }
}

impl ConfigError {
    pub(crate) fn in_policy(self, name: &str) -> Self {
        Self::InPolicy {
            name: name.to_owned(),
            mistake: Box::new(self),
        }
    }
}
