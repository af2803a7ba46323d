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
    warn_once(&format!(
        "no request extension {type_name} for `key::extension`; the key is missing: the layer that inserts the extension must run before the limiter (in axum, add it after the limiter)"
    ));
}

/// Logs a field of a response with a cost that cannot be read, once for each policy.
pub(crate) fn unread_cost(policy: &str, field: impl fmt::Display) {
    warn_once(&format!(
        "response field `{field}` is not one whole number; policy {policy:?} charges such a request what it held"
    ));
}

/// Logs a settler that panicked, once for each policy.
pub(crate) fn settler_panicked(policy: &str) {
    warn_once(&format!(
        "`settle_by(..)` of policy {policy:?} panicked; such a request is charged what it held"
    ));
}

pub(crate) fn untrusted_proxy(peer: IpAddr, header: impl fmt::Display) {
    warn_once(&format!(
        "untrusted peer {peer} sent `{header}`; the header is ignored, and all requests from this peer share one key: if it is your proxy, name it in `key::client_ip`"
    ));
}

pub(crate) fn other_forwarding_header(
    peer: IpAddr,
    header: impl fmt::Display,
    other: impl fmt::Display,
) {
    warn_once(&format!(
        "trusted proxy {peer} sent `{other}` and no `{header}`; all such requests share one key: name the header that your proxies write, as in `from_header`"
    ));
}

/// Logs an entry of a forwarding header that cannot be read, once for each header and proxy.
pub(crate) fn unread_address(proxy: IpAddr, header: impl fmt::Display, text: &[u8]) {
    let form = shape(text);
    let line = format!(
        "trusted proxy {proxy} sent an entry of `{header}` that cannot be read ({form}); all such requests share one key: see the forms in the guide \"Behind a proxy\""
    );
    warn_once_of(&format!("{proxy} {header}"), &line);
}

/// Returns the form of a text without its content, which may be a client's address.
fn shape(text: &[u8]) -> String {
    const LONGEST: usize = 60;

    if matches!(text, b"unknown" | b"unix:") {
        return String::from_utf8_lossy(text).into_owned();
    }
    let letter = |byte: &u8| match byte {
        b'0'..=b'9' => '0',
        b'a'..=b'z' | b'A'..=b'Z' => 'x',
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    };
    text.iter().take(LONGEST).map(letter).collect()
}

/// Logs a line once. Each part of an application may find the same mistake with each request.
fn warn_once(line: &str) {
    warn_once_of(line, line);
}

/// Logs a line about a subject once.
fn warn_once_of(subject: &str, line: &str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const MOST: usize = 256;

    let mut logged = lock(&LOGGED);
    if logged.len() < MOST && !logged.iter().any(|known| known == subject) {
        tell!(warn, "{line}");
        logged.push(subject.to_owned());
    }
}
