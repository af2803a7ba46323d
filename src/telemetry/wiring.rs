//! Under `tower_throttle::wiring`: mistakes in an application, or in front of it, that show with requests.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::Quota;
use crate::util::lock::lock;

pub(crate) fn misconfigured(advice: &str) {
    tell!(
        error,
        "wiring",
        "every request is answered with 500: {advice}"
    );
}

/// Logs that a shadow policy cannot read the key of any request.
pub(crate) fn shadow_misconfigured(advice: &str) {
    tell!(
        error,
        "wiring",
        "a shadow policy has no key for any request and is not checked; enforced, it would answer each with 500: {advice}"
    );
}
pub(crate) fn two_quotas(policy: &str, one: Quota, other: Quota) {
    let line = format!(
        "policy {policy:?} has two quotas on one store ({} and {}); a request that passes both is charged twice: give each a name of its own",
        one.to_name(),
        other.to_name(),
    );
    warn_of_wiring(&line);
}

/// Logs a missing extension once for each type, because a layer and its extractor both find it.
pub(crate) fn extension_missing(type_name: &'static str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    if !is_first(&LOGGED, type_name) {
        return;
    }
    let line = format!(
        "no request extension {type_name} for `key::extension`; the key is missing: the layer that inserts the extension must run before the limiter (in axum, add it after the limiter)"
    );
    warn_of_wiring(&line);
}

/// Logs a field that should have said what a request cost, once for each name.
pub(crate) fn unreadable_cost(field: &str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    if is_first(&LOGGED, field) {
        let line = format!(
            "response field `{field}` is not one whole number; such a request is charged what it held"
        );
        warn_of_wiring(&line);
    }
}

/// Logs a settler that panicked, once for each policy.
pub(crate) fn settler_panicked(policy: &str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    if is_first(&LOGGED, policy) {
        let line = format!(
            "`settle_by(..)` of policy {policy:?} panicked; such a request is charged what it held"
        );
        warn_of_wiring(&line);
    }
}

pub(crate) fn untrusted_proxy(peer: IpAddr, header: impl fmt::Display) {
    let line = format!(
        "untrusted peer {peer} sent `{header}`; the header is ignored, and all requests from this peer share one key: if it is your proxy, name it in `key::client_ip`"
    );
    warn_of_proxy(&line);
}
pub(crate) fn other_forwarding_header(
    peer: IpAddr,
    header: impl fmt::Display,
    other: impl fmt::Display,
) {
    let line = format!(
        "trusted proxy {peer} sent `{other}` and no `{header}`; all such requests share one key: name the header that your proxies write, as in `from_header`"
    );
    warn_of_proxy(&line);
}

/// Logs a few lines about proxies. Each extractor logs its line once, but an application may
/// create an extractor for each request.
fn warn_of_proxy(line: &str) {
    static LINES: AtomicU32 = AtomicU32::new(0);
    const MOST: u32 = 16;

    let order = Ordering::Relaxed;
    if LINES.load(order) < MOST && LINES.fetch_add(1, order) < MOST {
        warn_of_wiring(line);
    }
}

/// Adds a text to a short list. Returns `false` if it is there already.
fn is_first(list: &Mutex<Vec<String>>, text: &str) -> bool {
    const MOST: usize = 64;

    let mut list = lock(list);
    if list.iter().any(|known| known == text) {
        return false;
    }
    if list.len() < MOST {
        list.push(text.to_owned());
    }
    true
}

fn warn_of_wiring(line: &str) {
    tell!(warn, "wiring", "{line}");
}
