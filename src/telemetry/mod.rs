//! All log events of this crate.
//!
//! With the feature `tracing`, which is a default one, these are events under the
//! targets `tower_throttle::denied`, `tower_throttle::store`, `tower_throttle::control`,
//! `tower_throttle::config`, `tower_throttle::admin` and `tower_throttle::wiring`, and a span under
//! `tower_throttle::check`. Without it, or without a subscriber, nothing is logged.
//! No line holds a caller's key, a user or a password.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(any(feature = "http", feature = "control"))]
use std::fmt;
use std::time::Duration;
#[cfg(feature = "http")]
use std::{
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{Decision, Quota, StoreError};
#[cfg(feature = "http")]
use crate::{decision::DenialReason, util::lock::lock};

/// Logs an event, if the feature `tracing` is on.
macro_rules! tell {
    ($level:ident, $target:literal, $($event:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: concat!("tower_throttle::", $target), $($event)+);
    };
}

/// Logs that another version of a configuration is in force.
#[cfg(feature = "config")]
pub(crate) fn config_applied(version: u64, changes: &str) {
    tell!(
        info,
        "config",
        version,
        "configuration version {version} applied ({changes})"
    );
}

/// Logs that the files are again those of the version in force.
#[cfg(feature = "config")]
pub(crate) fn config_restored(version: u64) {
    tell!(
        info,
        "config",
        version,
        "configuration file is that of version {version} again"
    );
}

/// Logs a configuration that cannot be applied, with all mistakes in one line.
#[cfg(feature = "config")]
pub(crate) fn config_rejected(version: u64, errors: &impl fmt::Display) {
    let errors = errors.to_string().replace('\n', "; ");
    tell!(
        warn,
        "config",
        version,
        "configuration rejected ({errors}); version {version} stays in force, and the process cannot start again with this file"
    );
}

/// Logs that somebody logged in to the admin page.
#[cfg(feature = "admin")]
pub(crate) fn admin_session_began(peer: Option<IpAddr>) {
    tell!(
        info,
        "admin",
        peer = peer.map(tracing::field::display),
        "admin session began"
    );
}

/// Logs that too many wrong tokens came from one address.
#[cfg(feature = "admin")]
pub(crate) fn admin_attempts_denied(peer: Option<IpAddr>) {
    tell!(
        warn,
        "admin",
        peer = peer.map(tracing::field::display),
        "too many wrong tokens for the admin page; logins from this address are denied for a minute"
    );
}

/// Logs that a file of lists keeps others from being taken, once until it settles.
#[cfg(feature = "config")]
pub(crate) fn config_restless() {
    tell!(
        warn,
        "config",
        "the file of lists changes each time it is read; taking the configuration with the lists as they are"
    );
}

#[cfg(feature = "http")]
pub(crate) fn denied<'a, P: Iterator<Item = &'a str>>(
    reason: DenialReason,
    retry_after: Option<Duration>,
    missing: Option<&impl fmt::Display>,
    policies: impl Fn() -> P,
) {
    tell!(
        debug,
        "denied",
        policies = ?policies().collect::<Vec<_>>(),
        ?reason,
        ?retry_after,
        cause = missing.map(tracing::field::display),
        "denied",
    );
}

/// Logs that a layer or limiter limits nothing, because operators have switched its policies off.
pub(crate) fn all_policies_off(limiter: &str) {
    tell!(
        warn,
        "control",
        limiter,
        "control document switches all policies off; requests are not limited",
    );
}

/// Logs that listed addresses do not matter in a layer.
#[cfg(all(feature = "http", feature = "control"))]
pub(crate) fn listed_addresses_unread(limiter: &str) {
    tell!(
        warn,
        "control",
        limiter,
        "control document lists addresses that this layer does not read; they do not matter here",
    );
}

/// Logs that a shadow policy would have denied a request. `reason`: as of a denial.
pub(crate) fn shadow_denied(policy: &str, reason: &'static str, retry_after: Option<Duration>) {
    tell!(
        debug,
        "denied",
        policies = ?[policy],
        reason = %reason,
        ?retry_after,
        shadow = true,
        "would be denied",
    );
}

/// Logs that a shadow policy would have denied a request because it lacks the key.
#[cfg(feature = "http")]
pub(crate) fn shadow_key_missing(policy: &str, missing: &impl fmt::Display) {
    tell!(
        debug,
        "denied",
        policies = ?[policy],
        reason = %"KeyMissing",
        cause = %missing,
        shadow = true,
        "would be denied",
    );
}

/// Logs that a shadow policy cannot read the key of any request.
#[cfg(feature = "http")]
pub(crate) fn shadow_misconfigured(advice: &str) {
    tell!(
        error,
        "wiring",
        "a shadow policy has no key for any request and is not checked; enforced, it would answer each with 500: {advice}"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &StoreError) {
    tell!(
        error,
        "store",
        kind = error.kind_name(),
        "cannot connect to Redis ({error}); retrying in the background"
    );
}

pub(crate) fn store_failed(error: &StoreError) {
    tell!(
        error,
        "store",
        kind = error.kind_name(),
        "rate-limit store unavailable ({error}); applying `on_store_failure`"
    );
}

/// Logs another cause of the same outage. The first cause may say least: a server that has just
/// died is silent at first.
pub(crate) fn store_fails_otherwise(error: &StoreError) {
    tell!(
        error,
        "store",
        kind = error.kind_name(),
        "rate-limit store still unavailable, new error ({error})"
    );
}

pub(crate) fn store_recovered() {
    tell!(info, "store", "rate-limit store recovered");
}

/// Logs checks without a decision while the store is healthy: an overload, or unexpected data.
pub(crate) fn shed(error: &StoreError) {
    tell!(
        warn,
        "store",
        kind = error.kind_name(),
        "rate-limit store left checks undecided ({error}); allowing none unchecked"
    );
}

#[cfg(feature = "http")]
pub(crate) fn misconfigured(advice: &str) {
    tell!(
        error,
        "wiring",
        "every request is answered with 500: {advice}"
    );
}

/// Adds a text to a short list. Returns `false` if it is there already.
#[cfg(feature = "http")]
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

/// Logs a missing extension once for each type, because a layer and its extractor both find it.
#[cfg(feature = "http")]
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

/// Logs that a condition on routes can never hold.
#[cfg(all(feature = "config", feature = "axum"))]
#[cold]
pub(crate) fn no_matched_route() {
    let line = "no request has a matched route for `route` of the configuration, so such policies do not apply: add the layer to the `Router` itself, or use `path`";
    warn_of_wiring(line);
}

/// Logs that a reader chose a tier that the configuration lacks. The name may be a client's, so it
/// is not shown.
#[cfg(feature = "config")]
#[cold]
pub(crate) fn unknown_tier(policy: &str) {
    let line = format!(
        "the reader of policy {policy:?} returned the name of a tier that the configuration lacks; such requests have the tier `otherwise`"
    );
    warn_of_wiring(&line);
}

/// Logs a field that should have said what a request cost, once for each name.
#[cfg(feature = "http")]
#[cold]
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
#[cfg(feature = "http")]
#[cold]
pub(crate) fn settler_panicked(policy: &str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    if is_first(&LOGGED, policy) {
        let line = format!(
            "`settle_by(..)` of policy {policy:?} panicked; such a request is charged what it held"
        );
        warn_of_wiring(&line);
    }
}

#[cfg(feature = "http")]
#[cold]
pub(crate) fn untrusted_proxy(peer: IpAddr, header: impl fmt::Display) {
    let line = format!(
        "untrusted peer {peer} sent `{header}`; the header is ignored, and all requests from this peer share one key: if it is your proxy, name it in `key::client_ip`"
    );
    warn_of_proxy(&line);
}

#[cfg(feature = "http")]
#[cold]
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

#[cold]
pub(crate) fn two_quotas(policy: &str, one: Quota, other: Quota) {
    let line = format!(
        "policy {policy:?} has two quotas on one store ({} and {}); a request that passes both is charged twice: give each a name of its own",
        one.to_name(),
        other.to_name(),
    );
    warn_of_wiring(&line);
}

/// Logs a few lines about proxies. Each extractor logs its line once, but an application may
/// create an extractor for each request.
#[cfg(feature = "http")]
fn warn_of_proxy(line: &str) {
    static LINES: AtomicU32 = AtomicU32::new(0);
    const MOST: u32 = 16;

    let order = Ordering::Relaxed;
    if LINES.load(order) < MOST && LINES.fetch_add(1, order) < MOST {
        warn_of_wiring(line);
    }
}

/// Logs a new version of the control document.
#[cfg(feature = "control")]
pub(crate) fn control_applied(version: u64, entries: usize) {
    tell!(
        info,
        "control",
        version,
        entries,
        "control document applied"
    );
}

/// Logs that this process stored what Redis had lost.
#[cfg(feature = "control")]
pub(crate) fn control_restored(former: u64, version: u64, entries: usize) {
    tell!(
        warn,
        "control",
        entries,
        "control document had lost changes of version {former}; stored again as version {version}"
    );
}

/// Logs that lost changes cannot be stored again.
#[cfg(feature = "control")]
pub(crate) fn control_lacks_changes(why: &impl fmt::Display, former: u64, version: u64) {
    tell!(
        warn,
        "control",
        "control document lacks changes of version {former}, which cannot be stored again ({why}); version {version} applies"
    );
}

/// Logs that a lost document cannot be stored again, once for each reason.
#[cfg(feature = "control")]
pub(crate) fn control_not_stored(why: &str, version: u64) {
    tell!(
        warn,
        "control",
        "control document cannot be stored again ({why}); keeping version {version}"
    );
}

/// Logs a stored document that does not apply, once for each content.
#[cfg(feature = "control")]
pub(crate) fn control_rejected(why: &impl fmt::Display, version: u64) {
    tell!(
        warn,
        "control",
        "control document not applied ({why}); keeping version {version}"
    );
}

#[cfg(feature = "control")]
pub(crate) fn control_lost(version: u64) {
    tell!(
        warn,
        "control",
        "control document is gone from the store; keeping version {version}, and storing it again"
    );
}

/// Logs an entry that does not apply, once for each version.
#[cfg(feature = "control")]
pub(crate) fn control_not_taken(why: &str, version: u64) {
    tell!(
        warn,
        "control",
        version,
        "part of the control document not applied ({why}); the rest applies"
    );
}

#[cfg(feature = "control")]
pub(crate) fn control_unread(error: &StoreError, version: u64) {
    tell!(
        warn,
        "control",
        kind = error.kind_name(),
        "control document cannot be read ({error}); keeping version {version}"
    );
}

#[cfg(feature = "control")]
pub(crate) fn control_read_again(version: u64) {
    tell!(
        info,
        "control",
        version,
        "control document can be read again"
    );
}

/// Logs policies that may be those of other processes, once for each version.
#[cfg(feature = "control")]
pub(crate) fn control_unknown_policies(version: u64, policies: &[String]) {
    tell!(
        info,
        "control",
        version,
        ?policies,
        "control document names policies that this process does not have"
    );
}

/// Logs what an operator changed, or may have changed. `before` and `after` describe the policy, and
/// what it does with the caller.
#[cfg(feature = "admin")]
pub(crate) fn admin_change(
    who: &str,
    action: &str,
    policy: &str,
    fingerprint: &str,
    before: &str,
    after: &str,
) {
    tell!(
        info,
        "admin",
        who,
        action,
        policy,
        fingerprint,
        before,
        after,
        "an operator made a change"
    );
}

fn warn_of_wiring(line: &str) {
    tell!(warn, "wiring", "{line}");
}

/// The span of a check that waits for its store, or for room. It is at the level `TRACE`, so it
/// is off unless a subscriber asks for it. A check that is decided at once has none.
#[derive(Debug)]
pub(crate) struct CheckSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl CheckSpan {
    pub(crate) fn new(limiter: &str) -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::trace_span!(
                target: "tower_throttle::check",
                "tower_throttle.check",
                limiter,
                source = tracing::field::Empty,
                verdict = tracing::field::Empty,
                retry_after_ms = tracing::field::Empty,
            ),
        }
    }

    /// Does a part of the work of the check.
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.span.enter();
        work()
    }

    /// Records the decision. `verdict` and `source` are values of the labels of metrics.
    pub(crate) fn decided(&self, verdict: &'static str, source: &'static str, decision: &Decision) {
        #[cfg(feature = "tracing")]
        if !self.span.is_disabled() {
            self.span.record("source", source);
            if let Some(wait) = decision.retry_after() {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                self.span.record("retry_after_ms", wait_ms);
            }
        }
        self.ended(verdict);
    }

    /// Records how a check ended that was not decided.
    pub(crate) fn ended(&self, verdict: &'static str) {
        #[cfg(feature = "tracing")]
        self.span.record("verdict", verdict);
    }
}
