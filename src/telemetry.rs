//! Everything that this crate says to an operator.
//!
//! With the feature `tracing` these are events under the targets
//! `tower_throttle::denied`, `tower_throttle::store` and
//! `tower_throttle::wiring`. Without it, or without a subscriber, the lines that
//! an operator must not miss, said once or at a change of state, go to standard
//! error. Keys are never part of a line.

use std::{
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use http::HeaderName;

use crate::{DenialReason, Quota, StoreError, key::Missing};

#[cfg(feature = "tracing")]
pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    reason: DenialReason,
    retry_after: Option<Duration>,
    missing: Option<Missing>,
    policies: impl Fn() -> P,
) {
    tracing::debug!(
        target: "tower_throttle::denied",
        policies = ?policies().collect::<Vec<_>>(),
        ?reason,
        ?retry_after,
        cause = missing.map(tracing::field::display),
        "denied",
    );
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    _: DenialReason,
    _: Option<Duration>,
    _: Option<Missing>,
    _: impl Fn() -> P,
) {
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &StoreError) {
    let line = format!(
        "cannot connect to Redis ({}); retrying in the background",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn store_failed(error: &StoreError) {
    let line = format!(
        "the store fails ({}): meanwhile policies go by `on_store_failure`",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

/// The first sign may be the least telling: one that just died is silent at first.
pub(crate) fn store_fails_otherwise(error: &StoreError) {
    let line = format!("the store still fails, in another way ({})", cause(error));
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn store_recovered() {
    let line = "the store answers again";
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", "{line}");
    to_stderr(line);
}

/// Though the store is well: too many at once, or foreign data.
pub(crate) fn shed(error: &StoreError) {
    let line = format!(
        "some checks are not decided by the store ({})",
        cause(error)
    );
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::store", kind = error.kind_name(), "{line}");
    to_stderr(&line);
}

pub(crate) fn miswired(advice: &str) {
    let line = format!("every request is answered with 500: {advice}");
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tower_throttle::wiring", "{line}");
    to_stderr(&line);
}

/// Says it once for each type: a layer and its extractor both find it.
pub(crate) fn extension_missing(type_name: &'static str) {
    static SAID: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    const MOST: usize = 64;

    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.contains(&type_name) {
        return;
    }
    if said.len() < MOST {
        said.push(type_name);
    }
    drop(said);
    let line = format!(
        "no request extension {type_name} for `key::extension`; the key is missing: the layer that inserts the extension must run before the limiter (in axum, add it after the limiter)"
    );
    warn_of_wiring(&line);
}

#[cold]
pub(crate) fn untrusted_proxy(peer: IpAddr, header: &HeaderName) {
    let line = format!(
        "untrusted peer {peer} sent `{header}`; the header is ignored, and all requests from this peer share one key: if it is your proxy, name it in `key::client_ip`"
    );
    warn_of_proxy(&line);
}

#[cold]
pub(crate) fn other_forwarding_header(peer: IpAddr, header: &HeaderName, other: &HeaderName) {
    let line = format!(
        "trusted proxy {peer} sent `{other}` and no `{header}`; all such requests share one key: name the header that your proxies write, as in `from_header`"
    );
    warn_of_proxy(&line);
}

#[cold]
pub(crate) fn two_quotas(policy: &str, one: Quota, other: Quota) {
    let line = format!(
        "policy {policy:?} has two quotas on one store ({} and {}); a request that passes both is charged twice: give each a name of its own",
        one.to_name(),
        other.to_name(),
    );
    warn_of_wiring(&line);
}

/// An extractor says it once. One that is made anew for each request must not say it
/// with each.
fn warn_of_proxy(line: &str) {
    static LINES: AtomicU32 = AtomicU32::new(0);
    const MOST: u32 = 16;

    let order = Ordering::Relaxed;
    if LINES.load(order) < MOST && LINES.fetch_add(1, order) < MOST {
        warn_of_wiring(line);
    }
}

fn warn_of_wiring(line: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tower_throttle::wiring", "{line}");
    to_stderr(line);
}

fn cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Where nobody listens to events. A closed standard error is nobody's problem here.
fn to_stderr(line: &str) {
    use std::io::Write;

    #[cfg(feature = "tracing")]
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let _ = writeln!(std::io::stderr(), "tower-throttle: {line}");
}
