//! Under `tower_throttle::config`: files of limits.

use std::fmt;

/// Logs that another version of a configuration is in force.
pub(crate) fn applied(version: u64, changes: &str) {
    tracing::info!(
        target: "tower_throttle::config",
        version,
        "configuration version {version} applied ({changes})"
    );
}

/// Logs which policies another version does not have.
pub(crate) fn lost_policies(version: u64, policies: &str) {
    tracing::warn!(
        target: "tower_throttle::config",
        version,
        "configuration version {version} lacks policies that were in force ({policies}): nothing limits what they limited"
    );
}

/// Logs that the files are again those of the version in force.
pub(crate) fn restored(version: u64) {
    tracing::info!(
        target: "tower_throttle::config",
        version,
        "configuration file is that of version {version} again"
    );
}

/// Logs a configuration that cannot be applied, with all mistakes in one line. `starts`: whether a
/// process can start with it.
pub(crate) fn rejected(version: u64, errors: &impl fmt::Display, starts: bool) {
    let errors = errors.to_string().replace('\n', "; ");
    let then = match starts {
        true => "until the process restarts",
        false => "and the process cannot start again with this file",
    };
    tracing::warn!(
        target: "tower_throttle::config",
        version,
        "configuration rejected ({errors}); version {version} stays in force, {then}"
    );
}

/// Logs that very many addresses are trusted as proxies.
pub(crate) fn wide_proxies(range: &str) {
    tracing::warn!(
        target: "tower_throttle::config",
        "the range of trusted proxies {range:?} is very wide (`client_ip.trusted`): any host in it can claim to be another client; name the addresses of the proxies"
    );
}

/// Logs that a file of lists keeps others from being taken, once until it settles.
pub(crate) fn restless() {
    tracing::warn!(
        target: "tower_throttle::config",
        "the file of lists changes each time it is read; taking the configuration with the lists as they are"
    );
}

/// Logs that a reader chose a tier that the file lacks. The name may be a client's, so it is not shown.
pub(crate) fn unknown_tier(policy: &str) {
    tracing::warn!(
        target: "tower_throttle::wiring",
        "the reader of policy {policy:?} returned the name of a tier that the configuration lacks; such requests have the tier `otherwise`"
    );
}

/// Logs that a condition on routes can never hold.
#[cfg(feature = "axum")]
pub(crate) fn no_matched_route() {
    tracing::warn!(
        target: "tower_throttle::wiring",
        "no request has a matched route for `route` of the configuration, so such policies do not apply: add the layer to the `Router` itself, or use `path`"
    );
}
