//! Errors in the configuration, found when something is built.

mod code;
mod message;

use std::{convert::Infallible, error::Error, fmt, ops::Range, time::Duration};

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
    /// An allowed range of trusted proxies, which clients behind them could claim to be in.
    #[non_exhaustive]
    AllowsTrustedProxies {
        /// The range or the address.
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
    /// The store needs a Tokio runtime with timers to connect in.
    #[non_exhaustive]
    NoRuntime,
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

/// A [`Quota`](crate::Quota) is taken where a type that has to be checked is: it cannot fail.
impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
