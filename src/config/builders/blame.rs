//! Which field of the file an error of a builder is about.

use crate::{ConfigError, config::field::Field};

/// Returns the fields that an error may be about, the likeliest first. Those of a policy, of a
/// layer or limiter and of the store have different names.
pub(super) fn fields(error: &ConfigError) -> &'static [&'static str] {
    match error {
        ConfigError::InPolicy { error, .. } => fields(error),
        ConfigError::PolicyName { .. }
        | ConfigError::LimiterName { .. }
        | ConfigError::DuplicatePolicy { .. } => &["name"],
        ConfigError::CostAboveCapacity { .. } | ConfigError::CostOfPenalty { .. } => &["cost"],
        ConfigError::DebtTooLarge { .. } => &["max_debt"],
        ConfigError::CannotStrike { .. } => &["strike_on_denial"],
        ConfigError::SharedAndKeyed => &["shared"],
        ConfigError::CannotLease { .. } => &["lease"],
        ConfigError::CannotHold { .. } | ConfigError::HoldOutOfRange { .. } => {
            &["hold_for", "settle_by"]
        }
        ConfigError::SettlesNothing | ConfigError::StatusOutOfRange { .. } => &["settle_by"],
        // With `shadow_all`, it is the quota.
        ConfigError::CannotShadow { .. } => &["mode", "quota"],
        ConfigError::PercentOutOfRange { .. } | ConfigError::SharedPercent => &["mode"],
        ConfigError::ShadowHeadersUnsupported => &["shadow_with_headers"],
        ConfigError::PartitionKeyUnsupported => &["partition_key_secret"],
        ConfigError::NoPolicies => &["policies"],
        ConfigError::NoRequestToRead { method } => match *method {
            "cost_by" => &["cost"],
            "when" => &["when"],
            "settle_by" => &["settle_by"],
            _ => &["quota"],
        },
        ConfigError::HeaderName { .. } | ConfigError::CookieName { .. } => &["key"],
        ConfigError::Ipv6Prefix { .. } => &["ipv6_prefix"],
        ConfigError::TrustedProxy { .. }
        | ConfigError::TrustsEveryAddress { .. }
        | ConfigError::NoTrustedProxies => &["trusted"],
        ConfigError::ListEntry { .. }
        | ConfigError::ListHostBits { .. }
        | ConfigError::ListsEveryAddress { .. }
        | ConfigError::AllowsTrustedProxies { .. }
        | ConfigError::ListsEveryCaller
        | ConfigError::ListedTwice { .. }
        | ConfigError::ListLine
        | ConfigError::InList { .. }
        | ConfigError::ListFile { .. }
        | ConfigError::NoAddressReader => &["lists"],
        ConfigError::RedisUrl { .. } | ConfigError::NoRuntime => &["redis"],
        ConfigError::KeyPrefix { .. } => &["prefix"],
        ConfigError::Zero { setting } => match *setting {
            "share_of" => &["on_store_failure"],
            "timeout" => &["timeout"],
            "connections" => &["connections"],
            "max_in_flight" => &["max_in_flight"],
            "secret" => &["secret"],
            "partition_key_secret" => &["partition_key_secret"],
            _ => &["quota", "settle_by"],
        },
        // All others are about the numbers of a quota.
        _ => &["quota"],
    }
}

/// Returns the first of these fields that a table has.
pub(super) fn first_of<'a>(table: &Field<'a>, names: &[&str]) -> Option<Field<'a>> {
    let known = |name: &&&str| {
        table
            .table()
            .is_some_and(|table| table.field(name).is_some())
    };
    let mut known = names.iter().filter(known);
    known.find_map(|name| table.get(name))
}
