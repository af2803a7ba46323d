//! Under `tower_throttle::wiring`: mistakes in an application, or in front of it, that show with requests.

use std::{fmt, net::IpAddr, sync::Mutex};

use crate::{Quota, util::lock::lock};

#[cfg(feature = "tracing")]
const TARGET: &str = "tower_throttle::wiring";

pub(crate) fn misconfigured(advice: &str) {
    tell!(error, "every request is answered with 500: {advice}");
}

/// Logs that a shadow policy cannot read the key of any request.
pub(crate) fn shadow_misconfigured(advice: &str) {
    tell!(
        error,
        "a shadow policy has no key for any request and is not checked; enforced, it would answer each with 500: {advice}"
    );
}
pub(crate) fn two_quotas(policy: &str, one: Quota, other: Quota) {
    let line = format!(
        "policy {policy:?} has two quotas on one store ({one} and {other}); a request that passes both is charged twice: give each a name of its own"
    );
    tell!(warn, "{line}");
}

/// Logs a missing extension once for each type, because a layer and its extractor both find it.
pub(crate) fn extension_missing(type_name: &'static str) {
    warn_once(format!(
        "no request extension {type_name} for `key::extension`; the key is missing: the layer that inserts the extension must run before the limiter (in axum, add it after the limiter)"
    ));
}

/// Logs a field that should have said what a request cost, once for each name.
pub(crate) fn unreadable_cost(field: &str) {
    warn_once(format!(
        "response field `{field}` is not one whole number; such a request is charged what it held"
    ));
}

/// Logs a settler that panicked, once for each policy.
pub(crate) fn settler_panicked(policy: &str) {
    warn_once(format!(
        "`settle_by(..)` of policy {policy:?} panicked; such a request is charged what it held"
    ));
}

pub(crate) fn untrusted_proxy(peer: IpAddr, header: impl fmt::Display) {
    warn_once(format!(
        "untrusted peer {peer} sent `{header}`; the header is ignored, and all requests from this peer share one key: if it is your proxy, name it in `key::client_ip`"
    ));
}

pub(crate) fn other_forwarding_header(
    peer: IpAddr,
    header: impl fmt::Display,
    other: impl fmt::Display,
) {
    warn_once(format!(
        "trusted proxy {peer} sent `{other}` and no `{header}`; all such requests share one key: name the header that your proxies write, as in `from_header`"
    ));
}

/// Logs a line once. Each part of an application may find the same mistake with each request.
fn warn_once(line: String) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const MOST: usize = 256;

    let mut logged = lock(&LOGGED);
    if logged.len() < MOST && !logged.contains(&line) {
        tell!(warn, "{line}");
        logged.push(line);
    }
}
