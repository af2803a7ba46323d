//! Which field of the file an error of a builder is about.

use tower_throttle::ConfigError;

/// Returns the fields that an error may be about, the likeliest first. Those of a policy, of a
/// layer or limiter and of the store have different names.
pub(super) fn fields(error: &ConfigError) -> &'static [&'static str] {
    match error.code() {
        "policy-name" | "limiter-name" | "duplicate-policy" => &["name"],
        "cost-above-capacity" | "cost-of-penalty" => &["cost"],
        "debt-too-large" => &["max_debt"],
        "cannot-strike" => &["strike_on_denial"],
        "shared-and-keyed" => &["shared"],
        "cannot-lease" => &["lease"],
        "cannot-hold" | "hold-out-of-range" => &["hold_for", "settle_by"],
        "settles-nothing" | "status-out-of-range" => &["settle_by"],
        // With `shadow_all`, it is the quota.
        "cannot-shadow" => &["mode", "quota"],
        "percent-out-of-range" | "shared-percent" => &["mode"],
        "shadow-headers-unsupported" => &["shadow_with_headers"],
        "partition-key-unsupported" => &["partition_key_secret"],
        "no-policies" => &["policies"],
        "header-name" | "cookie-name" => &["key"],
        "ipv6-prefix" => &["ipv6_prefix"],
        "trusted-proxy" | "trusts-every-address" | "no-trusted-proxies" => &["trusted"],
        "allows-trusted-proxies" | "no-address-reader" => &["lists"],
        code if code.starts_with("list") => &["lists"],
        "redis-url" | "no-runtime" => &["redis"],
        "key-prefix" => &["prefix"],
        "no-request-to-read" | "redis-tls" | "zero" => {
            method_fields(error.subject().unwrap_or_default())
        }
        // All others are about the numbers of a quota.
        _ => &["quota"],
    }
}

/// Returns the fields that set what a method of a builder does.
fn method_fields(method: &str) -> &'static [&'static str] {
    match method {
        "cost_by" => &["cost"],
        "when" => &["when"],
        "settle_by" => &["settle_by"],
        "share_of" => &["on_store_failure"],
        "timeout" => &["timeout"],
        "connections" => &["connections"],
        "max_in_flight" => &["max_in_flight"],
        "secret" => &["secret"],
        "tls_authorities" => &["tls_authorities"],
        "tls_server_name" => &["tls_server_name"],
        "tls_client_certificate" => &["tls_client_certificate"],
        "tls_client_key" => &["tls_client_key"],
        "partition_key_secret" => &["partition_key_secret"],
        _ => &["quota", "settle_by"],
    }
}
