//! The message of each error: what is wrong, and what to change.

use std::fmt;

use super::ConfigError;

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
                "`strike_on_denial()` cannot be combined with {conflict}; drop it, or change that",
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
            Self::AllowsTrustedProxies { text } => write!(
                f,
                "allowed range {text:?} is within the trusted proxies, so a client behind them could claim an address in it; allow ranges of clients, or trust the addresses of your proxies alone",
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
                "no Tokio runtime with timers to connect in; build the store inside a runtime with `enable_all()`",
            ),
        }
    }
}
