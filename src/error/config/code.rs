//! The code of each error: a word for programs, which `docs/errors.md` explains.

use super::ConfigError;

/// Gives each variant its code.
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
    AllowsTrustedProxies => "allows-trusted-proxies",
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

#[cfg(test)]
mod tests {
    use super::CODES;
    use crate::util::repository;

    /// One row of the page for each code, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_code_once() {
        let Some(page) = repository::read("docs/errors.md") else {
            return;
        };
        let table = page
            .split("## ")
            .find(|part| part.starts_with("Configuration"));
        let rows = table.expect("its table").lines();
        let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        assert_eq!(listed.collect::<Vec<_>>(), CODES);
    }
}
