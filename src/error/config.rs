//! Errors in the configuration, found when something is built.

use std::{error::Error, fmt, time::Duration};

/// An error in the configuration, found before the first request.
///
/// The message says what is wrong and what to change. [`code`](Self::code) is a word for
/// programs and for looking it up.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
///
/// let error = Quota::try_from(TokenBucket::per_second(2_000_000)).unwrap_err();
/// assert_eq!(error.code(), "rate-too-high");
/// ```
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
    /// A policy of a [`Limiter`](crate::Limiter) that reads requests.
    NoRequestToRead {
        /// The method of [`Policy`](crate::Policy) that reads them.
        method: &'static str,
    },
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
            Self::ZeroPeriod => {
                f.write_str("a period of zero; use a longer one")
            }
            Self::RateTooHigh { limit, period } => write!(
                f,
                "{limit} per {period:?} is more than 1,000,000 a second; lower the limit, or count in larger units",
            ),
            Self::BucketTooDeep { limit, period } => write!(
                f,
                "at {limit} per {period:?} this bucket takes 104 days or more to fill; lower the burst, or use a FixedWindow",
            ),
            Self::BurstWithoutRefill { burst } => write!(
                f,
                "a burst of {burst} with a limit of 0, which denies everything; set a limit, drop the burst, or use `TokenBucket::without_refill({burst})`",
            ),
            Self::InitialAboveBurst { initial, burst } => write!(
                f,
                "`initial({initial})` exceeds the burst of {burst}; lower it, or raise the burst",
            ),
            Self::WindowNotWholeMilliseconds { window } => write!(
                f,
                "a window of {window:?} has a fraction of a millisecond; use whole milliseconds",
            ),
            Self::WindowTooLong { window } => write!(
                f,
                "a window of {window:?} exceeds the maximum of 100 years; use a shorter window",
            ),
            Self::LimitTooLarge { limit } => {
                write!(f, "a limit of {limit} is too large to count exactly; use one below 2^53")
            }
            Self::WindowTooLarge { limit, window } => write!(
                f,
                "a limit of {limit} in a SlidingWindow of {window:?} is too large to count exactly (4 * limit * milliseconds must be below 2^53); lower one of them, or use a FixedWindow",
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
                "a Concurrency limit of {limit} exceeds the maximum of {most} permits under one key; lower it, or use more keys",
            ),
            Self::LifetimeTooShort { lifetime } => write!(
                f,
                "a permit lifetime of {lifetime:?} is too short to renew; use `lifetime(..)` of 100 ms or more",
            ),
            Self::SpreadWithoutStart => f.write_str(
                "`spread()` on windows that start with each caller's first request; call `aligned()` first, or drop `spread()`",
            ),
            Self::NoPolicies => f.write_str("no policy; add at least one with `policy(..)`"),
            Self::PolicyName { name } => write!(
                f,
                "policy name {name:?} is not 1 to 64 printable ASCII characters; choose another name",
            ),
            Self::DuplicatePolicy { name } => write!(
                f,
                "two policies named {name:?} would share their buckets; rename one",
            ),
            Self::CostAboveCapacity { cost, capacity } => write!(
                f,
                "`cost({cost})` exceeds the {capacity} units that the quota can grant at once; lower the cost, or raise the quota",
            ),
            Self::SharedAndKeyed => f.write_str(
                "`shared()` and `key(..)` contradict each other; drop one of them",
            ),
            Self::NoRequestToRead { method } => write!(
                f,
                "`{method}(..)` reads requests, which a `Limiter` does not have; drop it, or use a `RateLimitLayer`",
            ),
            Self::CannotLease { beside } => write!(
                f,
                "`lease()` cannot be combined with {beside}; it needs a TokenBucket without `max_debt(..)` or `wait_up_to(..)`",
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
                "a forwarding header without trusted proxies; name the proxies, or use `key::peer()`",
            ),
            Self::HeaderName { name } => {
                write!(f, "{name:?} is not a header name; use a token such as \"x-api-key\"")
            }
            Self::CookieName { name } => {
                write!(f, "{name:?} is not a cookie name; use a token such as \"session\"")
            }
            Self::Ipv6Prefix { bits } => write!(
                f,
                "an IPv6 prefix of {bits} bits is out of range; use 1 to 128",
            ),
            Self::RedisUrl { reason } => write!(f, "unusable Redis URL: {reason}"),
            Self::KeyPrefix { prefix } => write!(
                f,
                "key prefix {prefix:?} is not 1 to 64 printable ASCII characters without braces; choose another prefix",
            ),
            Self::PartitionKeyWithoutLists => f.write_str(
                "`partition_key(..)` with header fields that have no place for it; use `HeaderFormat::Draft10`, or drop `partition_key(..)`",
            ),
            Self::Zero { setting } => write!(
                f,
                "`{setting}` is zero or empty; set a value, or leave it out for the default",
            ),
            Self::NoRuntime => f.write_str(
                "no Tokio runtime to connect in; build the store inside a runtime",
            ),
        }
    }
}

/// Gives each variant its code: `docs/errors.md` explains all of them.
macro_rules! codes {
    ($($variant:ident => $code:literal,)+) => {
        impl ConfigError {
            /// Returns the code of this error: one word of a fixed set that stays the
            /// same from release to release, to look up in `docs/errors.md`. For an
            /// error inside a policy, the code of that error.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    Self::InPolicy { mistake, .. } => mistake.code(),
                    $(Self::$variant { .. } => $code,)+
                }
            }
        }

        #[cfg(test)]
        const CODES: &[&str] = &[$($code),+];
    };
}

codes! {
    ZeroPeriod => "zero-period",
    RateTooHigh => "rate-too-high",
    BucketTooDeep => "bucket-too-deep",
    BurstWithoutRefill => "burst-without-refill",
    InitialAboveBurst => "initial-above-burst",
    WindowNotWholeMilliseconds => "window-not-whole-milliseconds",
    WindowTooLong => "window-too-long",
    LimitTooLarge => "limit-too-large",
    WindowTooLarge => "window-too-large",
    LogTooLarge => "log-too-large",
    DebtTooLarge => "debt-too-large",
    TooManyPermits => "too-many-permits",
    LifetimeTooShort => "lifetime-too-short",
    SpreadWithoutStart => "spread-without-start",
    NoPolicies => "no-policies",
    PolicyName => "policy-name",
    DuplicatePolicy => "duplicate-policy",
    CostAboveCapacity => "cost-above-capacity",
    SharedAndKeyed => "shared-and-keyed",
    NoRequestToRead => "no-request-to-read",
    CannotLease => "cannot-lease",
    TrustedProxy => "trusted-proxy",
    TrustsEverybody => "trusts-everybody",
    NoTrustedProxies => "no-trusted-proxies",
    HeaderName => "header-name",
    CookieName => "cookie-name",
    Ipv6Prefix => "ipv6-prefix",
    RedisUrl => "redis-url",
    KeyPrefix => "key-prefix",
    PartitionKeyWithoutLists => "partition-key-without-lists",
    Zero => "zero",
    NoRuntime => "no-runtime",
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

#[cfg(test)]
mod tests {
    use super::CODES;

    /// One row of the page for each code, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_code_once() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
        let page = std::fs::read_to_string(page).expect("the page of errors");
        let table = page
            .split("## ")
            .find(|part| part.starts_with("Configuration"));
        let rows = table.expect("its table").lines();
        let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        assert_eq!(listed.collect::<Vec<_>>(), CODES);
    }
}
