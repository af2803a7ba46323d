//! Errors in the configuration, found when something is built.

use std::{error::Error, fmt, ops::Range, time::Duration};

/// An error in the configuration, found before the first request.
///
/// The message says what is wrong and what to change. [`code`](Self::code) returns a word for
/// programs, which is also in the
/// [table of errors](https://github.com/tower-throttle/tower-throttle/blob/main/docs/errors.md).
/// `Debug` shows the message and the code, because a `main` that returns the error prints it so.
/// Variants may gain fields in any release, so match them with `..`.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
///
/// let error = Quota::try_from(TokenBucket::per_second(2_000_000)).unwrap_err();
/// assert_eq!(error.code(), "rate-too-high");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A period or window of zero.
    #[non_exhaustive]
    ZeroPeriod,
    /// A rate above 1,000,000 units a second.
    #[non_exhaustive]
    RateTooHigh {
        /// Tokens per period.
        limit: u64,
        /// The period.
        period: Duration,
    },
    /// A bucket that takes 104 days (2^53 ns) or more to fill.
    #[non_exhaustive]
    BucketTooDeep {
        /// Tokens per period.
        limit: u64,
        /// The period.
        period: Duration,
    },
    /// A burst with a limit of 0, which denies everything. A bucket that is never refilled is
    /// made by [`without_refill`](crate::TokenBucket::without_refill).
    #[non_exhaustive]
    BurstWithoutRefill {
        /// The burst.
        burst: u64,
    },
    /// More initial tokens than the bucket holds.
    #[non_exhaustive]
    InitialAboveBurst {
        /// The tokens of a new caller.
        initial: u64,
        /// The most tokens that the bucket holds.
        burst: u64,
    },
    /// A window with a fraction of a millisecond.
    #[non_exhaustive]
    WindowNotWholeMilliseconds {
        /// The window.
        window: Duration,
    },
    /// A window of more than 100 years.
    #[non_exhaustive]
    WindowTooLong {
        /// The window.
        window: Duration,
    },
    /// A limit of 2^53 or more.
    #[non_exhaustive]
    LimitTooLarge {
        /// The limit.
        limit: u64,
    },
    /// A limit and a window whose product is too large to count exactly.
    #[non_exhaustive]
    WindowTooLarge {
        /// The limit.
        limit: u64,
        /// The window.
        window: Duration,
    },
    /// A log with more entries than one key may hold.
    #[non_exhaustive]
    LogTooLarge {
        /// The limit.
        limit: u64,
        /// The most that one key may hold.
        max: u64,
    },
    /// A debt that cannot be counted exactly, or on a quota that cannot be in debt.
    #[non_exhaustive]
    DebtTooLarge {
        /// The debt that was asked for, in units.
        debt: u64,
        /// The largest debt that the quota can have.
        max: u64,
    },
    /// More permits than one key may hold.
    #[non_exhaustive]
    TooManyPermits {
        /// The limit.
        limit: u64,
        /// The most that one key may hold.
        max: u64,
    },
    /// A lifetime too short to renew a permit in.
    #[non_exhaustive]
    LifetimeTooShort {
        /// The lifetime.
        lifetime: Duration,
    },
    /// `spread()` on windows that start with each caller's first request.
    #[non_exhaustive]
    SpreadUnaligned,
    /// A longest ban that is shorter than the first one.
    #[non_exhaustive]
    LongestBanTooShort {
        /// The first ban.
        lasting: Duration,
        /// The longest ban.
        longest: Duration,
    },
    /// Bans that are forgiven, and all of which are equally long.
    #[non_exhaustive]
    NothingToForgive,
    /// A [text](crate::Quota#as-text) that is no quota.
    #[non_exhaustive]
    QuotaText {
        /// What was given.
        text: String,
        /// The bytes of the wrong word in it. Empty if a word is missing there.
        at: Range<usize>,
        /// What is wrong, and what to change.
        reason: String,
    },
    /// A text that names no caller: see `control::Caller`.
    #[non_exhaustive]
    CallerText {
        /// What is wrong, and what to change. It repeats nothing of the text.
        reason: &'static str,
    },
    /// A text that is no name of an [`Algorithm`](crate::Algorithm).
    #[non_exhaustive]
    AlgorithmText {
        /// What was given.
        text: String,
        /// What is wrong, and what to change.
        reason: String,
    },
    /// A text that is no [`OnStoreFailure`](crate::OnStoreFailure).
    #[non_exhaustive]
    OnStoreFailureText {
        /// What was given.
        text: String,
        /// The bytes of the wrong word in it. Empty if a word is missing there.
        at: Range<usize>,
        /// What is wrong, and what to change.
        reason: String,
    },
    /// No policy at all.
    #[non_exhaustive]
    NoPolicies,
    /// A policy name that is empty, longer than 64 bytes or not printable ASCII.
    #[non_exhaustive]
    PolicyName {
        /// The name.
        name: String,
    },
    /// A name of a layer or limiter that is empty, longer than 64 bytes or not printable ASCII.
    #[non_exhaustive]
    LimiterName {
        /// The name.
        name: String,
    },
    /// Two policies with one name.
    #[non_exhaustive]
    DuplicatePolicy {
        /// The name.
        name: String,
    },
    /// A fixed cost that the quota can never grant.
    #[non_exhaustive]
    CostAboveCapacity {
        /// The cost.
        cost: u64,
        /// The most that can be taken at once.
        capacity: u64,
    },
    /// A cost of a [`Penalty`](crate::Penalty), which takes no units.
    #[non_exhaustive]
    CostOfPenalty {
        /// The method of [`Policy`](crate::Policy) that set it.
        method: &'static str,
    },
    /// Strikes on denials where there can be none.
    #[non_exhaustive]
    CannotStrike {
        /// The quota or the setting, and why.
        conflict: &'static str,
    },
    /// A policy with both `shared()` and `key(..)`.
    #[non_exhaustive]
    SharedAndKeyed,
    /// A policy that reads requests, in a [`Limiter`](crate::Limiter).
    #[non_exhaustive]
    NoRequestToRead {
        /// The method of [`Policy`](crate::Policy) that set the reader.
        method: &'static str,
    },
    /// Leases on a quota, or with a setting, that cannot have them.
    #[non_exhaustive]
    CannotLease {
        /// The quota or the setting.
        conflict: &'static str,
    },
    /// Units that are held under a quota, or with a setting, that cannot hold any.
    #[non_exhaustive]
    CannotHold {
        /// The quota or the setting, and why.
        conflict: &'static str,
    },
    /// Units that are held for less than a second or for more than a day.
    #[non_exhaustive]
    HoldOutOfRange {
        /// The time that was set.
        lifetime: Duration,
    },
    /// A shadow policy with a quota or a setting that it cannot have.
    #[non_exhaustive]
    CannotShadow {
        /// The quota or the setting, and why.
        conflict: &'static str,
    },
    /// A control document that calls keys by other names than the store does.
    #[non_exhaustive]
    ControlSecret,
    /// A quota in a control document that a caller of the policy cannot have.
    #[non_exhaustive]
    CannotOverride {
        /// The two quotas, and why.
        conflict: &'static str,
    },
    /// A share of callers outside 1 to 100 percent.
    #[non_exhaustive]
    PercentOutOfRange {
        /// What was given.
        percent: u8,
    },
    /// A share of the callers of a policy that has one bucket for all.
    #[non_exhaustive]
    SharedPercent,
    /// Header fields for shadow policies, in a format that does not name policies.
    #[non_exhaustive]
    ShadowHeadersUnsupported,
    /// An error inside a policy.
    #[non_exhaustive]
    InPolicy {
        /// The policy's name.
        name: String,
        /// The error.
        error: Box<Self>,
    },
    /// A trusted proxy that is neither an address nor a CIDR range.
    #[non_exhaustive]
    TrustedProxy {
        /// What was given.
        text: String,
    },
    /// The trusted proxies match every client: all public addresses of IPv4 or IPv6, or
    /// all of IPv4 behind a translator.
    #[non_exhaustive]
    TrustsEveryAddress {
        /// The range, or all ranges that do so together.
        text: String,
    },
    /// A forwarding header without trusted proxies, whose header it would be.
    #[non_exhaustive]
    NoTrustedProxies,
    /// Not a header name.
    #[non_exhaustive]
    HeaderName {
        /// What was given.
        name: String,
    },
    /// Not a cookie name.
    #[non_exhaustive]
    CookieName {
        /// What was given.
        name: String,
    },
    /// An IPv6 prefix outside 1 to 128.
    #[non_exhaustive]
    Ipv6Prefix {
        /// What was given.
        bits: u8,
    },
    /// An entry of [`Lists`](crate::Lists) that is neither an address nor a CIDR range.
    #[non_exhaustive]
    ListEntry {
        /// What was given.
        text: String,
    },
    /// A listed CIDR range with bits set beyond its prefix.
    #[non_exhaustive]
    ListHostBits {
        /// What was given.
        text: String,
        /// The range without these bits.
        range: String,
    },
    /// A listed CIDR range that every address is in.
    #[non_exhaustive]
    ListsEveryAddress {
        /// What was given.
        text: String,
    },
    /// The key of all callers, on a list.
    #[non_exhaustive]
    ListsEveryCaller,
    /// An entry that is listed already.
    #[non_exhaustive]
    ListedTwice {
        /// What was given. `None` for a key, which may be a credential.
        text: Option<String>,
        /// Whether the two are on different lists.
        is_on_both: bool,
    },
    /// A line that is no entry of a list.
    #[non_exhaustive]
    ListLine,
    /// An error in the text of lists.
    #[non_exhaustive]
    InList {
        /// The file. `None` for a text that is from no file.
        file: Option<String>,
        /// The number of the line. The first line is 1.
        line: usize,
        /// The error.
        error: Box<Self>,
    },
    /// A file of lists that cannot be read.
    #[non_exhaustive]
    ListFile {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// Lists of addresses, and nothing that reads the client's address.
    #[non_exhaustive]
    NoAddressReader,
    /// A Redis URL that cannot be used.
    #[non_exhaustive]
    RedisUrl {
        /// Why.
        reason: String,
    },
    /// A key prefix with braces or unprintable bytes, or longer than 64 bytes.
    #[non_exhaustive]
    KeyPrefix {
        /// What was given.
        prefix: String,
    },
    /// Partition keys with a header format that has no place for them.
    #[non_exhaustive]
    PartitionKeyUnsupported,
    /// A policy that settles what it holds, and can neither hold nor charge a unit.
    #[non_exhaustive]
    SettlesNothing,
    /// A status outside 100 to 999.
    #[non_exhaustive]
    StatusOutOfRange {
        /// What was given.
        code: u16,
    },
    /// A secret of the admin page that can be guessed.
    #[non_exhaustive]
    AccessSecretTooShort {
        /// How many characters it has.
        characters: usize,
    },
    /// A secret of the admin page that no header field can carry.
    #[non_exhaustive]
    AccessSecretText,
    /// No secret of the admin page in an environment variable.
    #[non_exhaustive]
    AccessVariable {
        /// The name of the variable.
        name: String,
    },
    /// A setting of zero, an empty list or an empty secret.
    #[non_exhaustive]
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
    /// The store needs a Tokio runtime to connect in.
    #[non_exhaustive]
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
            Self::LogTooLarge { limit, max } => write!(
                f,
                "a SlidingLog limit of {limit} exceeds the maximum of {max} entries; use a SlidingWindow, or raise `max_entries(..)`",
            ),
            Self::DebtTooLarge { debt, max: 0 } => write!(
                f,
                "`max_debt({debt})` on a quota that cannot be in debt; drop `max_debt(..)`",
            ),
            Self::DebtTooLarge { debt, max } => write!(
                f,
                "`max_debt({debt})` exceeds the maximum of {max} units; lower it",
            ),
            Self::TooManyPermits { limit, max } => write!(
                f,
                "a Concurrency limit of {limit} exceeds the maximum of {max} permits under one key; lower it, or use more keys",
            ),
            Self::LifetimeTooShort { lifetime } => write!(
                f,
                "a permit lifetime of {lifetime:?} is too short to renew; use `lifetime(..)` of 100 ms or more",
            ),
            Self::SpreadUnaligned => f.write_str(
                "`spread()` on windows that start with each caller's first request; add `aligned()`, or drop `spread()`",
            ),
            Self::LongestBanTooShort { lasting, longest } => write!(
                f,
                "`doubling_up_to({longest:?})` is shorter than the first ban, `lasting({lasting:?})`; raise it, or drop it",
            ),
            Self::NothingToForgive => f.write_str(
                "`forgiven_after(..)` without `doubling_up_to(..)`, where all bans are equally long; drop it, or double the bans",
            ),
            Self::QuotaText { text, reason, .. } => write!(f, "quota {text:?}: {reason}"),
            Self::CallerText { reason } => write!(f, "caller: {reason}"),
            Self::AlgorithmText { text, reason } => write!(f, "algorithm {text:?}: {reason}"),
            Self::OnStoreFailureText { text, reason, .. } => {
                write!(f, "on_store_failure {text:?}: {reason}")
            }
            Self::NoPolicies => f.write_str("no policy; add at least one with `policy(..)`"),
            Self::PolicyName { name } => write!(
                f,
                "policy name {name:?} is not 1 to 64 printable ASCII characters; choose another name",
            ),
            Self::LimiterName { name } => write!(
                f,
                "limiter name {name:?} is not 1 to 64 printable ASCII characters; choose another name",
            ),
            Self::DuplicatePolicy { name } => write!(
                f,
                "two policies named {name:?} would share their buckets; rename one",
            ),
            Self::CostAboveCapacity { cost, capacity } => write!(
                f,
                "`cost({cost})` exceeds the {capacity} units that the quota can grant at once; lower the cost, or raise the quota",
            ),
            Self::CostOfPenalty { method } => write!(
                f,
                "`{method}(..)` on a Penalty, which takes no units of a request; drop it",
            ),
            Self::CannotStrike { conflict } => write!(
                f,
                "`strike_on_denial()` cannot be combined with {conflict}; drop one of them",
            ),
            Self::SharedAndKeyed => f.write_str(
                "`shared()` and `key(..)` contradict each other; drop one of them",
            ),
            Self::NoRequestToRead { method } => write!(
                f,
                "`{method}(..)` reads requests, which a `Limiter` does not have; drop it, or use a `RateLimitLayer`",
            ),
            Self::CannotLease { conflict } => write!(
                f,
                "`lease()` cannot be combined with {conflict}; it needs a TokenBucket without `max_debt(..)` or `wait_up_to(..)`",
            ),
            Self::CannotHold { conflict } => write!(
                f,
                "a policy whose requests hold units cannot have {conflict}; drop that, or `hold_for(..)` and `settle_by(..)`",
            ),
            Self::HoldOutOfRange { lifetime } => write!(
                f,
                "`hold_for({lifetime:?})` is outside 1 second to 1 day; requests that last longer are renewed, so the default of 60 seconds suits most",
            ),
            Self::CannotShadow { conflict } => write!(
                f,
                "a shadow policy cannot have {conflict}; drop that, or enforce the policy",
            ),
            Self::ControlSecret => f.write_str(
                "the control document names callers with another secret than the store, so it would find none; use `RedisStore::control()` of a store with the same `secret(..)`",
            ),
            Self::CannotOverride { conflict } => write!(
                f,
                "a caller's quota cannot replace that of the policy: {conflict}; give a quota of the policy's algorithm",
            ),
            Self::PercentOutOfRange { percent } => write!(
                f,
                "`Percent::of_keys({percent})` is outside 1 to 100; use `shadow()` to enforce the policy for no caller",
            ),
            Self::SharedPercent => f.write_str(
                "`enforce_for(..)` chooses among keys, and a `shared()` policy has one for all callers; drop one of them",
            ),
            Self::ShadowHeadersUnsupported => f.write_str(
                "`shadow_with_headers()` with header fields that do not name policies; use `HeaderFormat::Draft10`, or drop `shadow_with_headers()`",
            ),
            Self::InPolicy { name, error } => write!(f, "policy {name:?}: {error}"),
            Self::TrustedProxy { text } => write!(
                f,
                "trusted proxy {text:?} is no address and no CIDR range; name it as \"10.0.0.7\" or \"10.0.0.8/30\"",
            ),
            Self::TrustsEveryAddress { text } => write!(
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
            Self::ListEntry { text } => write!(
                f,
                "listed address {text:?} is no address and no CIDR range; write it as \"198.51.100.7\" or \"198.51.100.0/24\"",
            ),
            Self::ListHostBits { text, range } => write!(
                f,
                "listed range {text:?} has bits set beyond its prefix; write {range:?} for the range, or the address alone",
            ),
            Self::ListsEveryAddress { text } => write!(
                f,
                "listed range {text:?} matches every address; list smaller ranges, or choose requests with `when(..)`",
            ),
            Self::ListsEveryCaller => f.write_str(
                "the key of all callers is listed; list keys of single callers",
            ),
            Self::ListedTwice { text, is_on_both } => {
                match text {
                    Some(text) => write!(f, "{text:?}")?,
                    None => f.write_str("a key")?,
                }
                f.write_str(match is_on_both {
                    true => " is on the allow list and on the deny list; remove one",
                    false => " is listed twice; remove one",
                })
            }
            Self::ListLine => f.write_str(
                "no entry of a list; write `allow` or `deny`, and then an address, a CIDR range, `key TEXT` or `number NUMBER`",
            ),
            Self::InList { file: Some(file), line, error } => write!(f, "{file}:{line}: {error}"),
            Self::InList { file: None, line, error } => write!(f, "line {line}: {error}"),
            Self::ListFile { file, reason } => {
                write!(f, "cannot read {file} ({reason}); make it readable, or name another file")
            }
            Self::NoAddressReader => f.write_str(
                "addresses are listed, and nothing reads the client's; name a reader with `Lists::client_address(key::client_ip(..))`",
            ),
            Self::RedisUrl { reason } => write!(f, "unusable Redis URL: {reason}"),
            Self::KeyPrefix { prefix } => write!(
                f,
                "key prefix {prefix:?} is not 1 to 64 printable ASCII characters without braces; choose another prefix",
            ),
            Self::PartitionKeyUnsupported => f.write_str(
                "`partition_key_secret(..)` with header fields that have no place for it; use `HeaderFormat::Draft10`, or drop `partition_key_secret(..)`",
            ),
            Self::SettlesNothing => f.write_str(
                "`settle_by(..)` with `cost(0)` and no debt holds nothing and can charge nothing; set a cost, or `max_debt(..)`",
            ),
            Self::StatusOutOfRange { code } => write!(
                f,
                "{code} is not an HTTP status; use 100 to 999",
            ),
            Self::AccessSecretTooShort { characters } => write!(
                f,
                "a secret of {characters} characters for `Access::bearer(..)` can be guessed; use 16 or more, such as those of `openssl rand -hex 32`",
            ),
            Self::AccessSecretText => f.write_str(
                "the secret for `Access::bearer(..)` has a space, a line break or a character beyond ASCII; use printable ASCII without spaces",
            ),
            Self::AccessVariable { name } => write!(
                f,
                "the environment variable {name:?} for `Access::bearer_env(..)` is not set, or is no text; set it to a secret of 16 characters or more",
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
            /// error inside a policy or a list, the code of that error.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    Self::InPolicy { error, .. } | Self::InList { error, .. } => error.code(),
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
    SpreadUnaligned => "spread-unaligned",
    LongestBanTooShort => "longest-ban-too-short",
    NothingToForgive => "nothing-to-forgive",
    QuotaText => "quota-text",
    CallerText => "caller-text",
    AlgorithmText => "algorithm-text",
    OnStoreFailureText => "on-store-failure-text",
    NoPolicies => "no-policies",
    PolicyName => "policy-name",
    LimiterName => "limiter-name",
    DuplicatePolicy => "duplicate-policy",
    CostAboveCapacity => "cost-above-capacity",
    CostOfPenalty => "cost-of-penalty",
    CannotStrike => "cannot-strike",
    SharedAndKeyed => "shared-and-keyed",
    NoRequestToRead => "no-request-to-read",
    CannotLease => "cannot-lease",
    CannotHold => "cannot-hold",
    HoldOutOfRange => "hold-out-of-range",
    CannotShadow => "cannot-shadow",
    ControlSecret => "control-secret",
    CannotOverride => "cannot-override",
    PercentOutOfRange => "percent-out-of-range",
    SharedPercent => "shared-percent",
    ShadowHeadersUnsupported => "shadow-headers-unsupported",
    TrustedProxy => "trusted-proxy",
    TrustsEveryAddress => "trusts-every-address",
    NoTrustedProxies => "no-trusted-proxies",
    HeaderName => "header-name",
    CookieName => "cookie-name",
    Ipv6Prefix => "ipv6-prefix",
    ListEntry => "list-entry",
    ListHostBits => "list-host-bits",
    ListsEveryAddress => "lists-every-address",
    ListsEveryCaller => "lists-every-caller",
    ListedTwice => "listed-twice",
    ListLine => "list-line",
    ListFile => "list-file",
    NoAddressReader => "no-address-reader",
    RedisUrl => "redis-url",
    KeyPrefix => "key-prefix",
    PartitionKeyUnsupported => "partition-key-unsupported",
    SettlesNothing => "settles-nothing",
    StatusOutOfRange => "status-out-of-range",
    AccessSecretTooShort => "access-secret-too-short",
    AccessSecretText => "access-secret-text",
    AccessVariable => "access-variable",
    Zero => "zero",
    NoRuntime => "no-runtime",
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InPolicy { error, .. } | Self::InList { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.code())
    }
}

impl ConfigError {
    pub(crate) fn in_policy(self, name: &str) -> Self {
        Self::InPolicy {
            name: name.to_owned(),
            error: Box::new(self),
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
