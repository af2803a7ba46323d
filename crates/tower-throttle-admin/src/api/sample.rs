//! What happened in a second, as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use tower_throttle::metrics::{Requests, Snapshot, StoreMetrics};

/// Describes what a layer or limiter counted in this time.
pub(super) fn limiter(counted: &Snapshot, over: Duration) -> Value {
    let rate = |count| rate(count, over);
    let (allowed, denied) = allowed_and_denied(&counted.requests);
    let shadow_denied = counted.policies().map(|(_, checks)| checks.shadow_denied);
    let sources = counted.decisions.by_source();
    let sources = sources.map(|(source, count)| (source.to_owned(), Value::from(rate(count))));
    let policies = counted.policies().map(|(name, checks)| {
        json!({
            "name": name,
            "allowed": rate(checks.allowed + checks.near),
            "denied": rate(checks.denied + checks.impossible + checks.key_missing),
            "shadow_denied": rate(checks.shadow_denied),
        })
    });
    json!({
        "name": counted.limiter(),
        "allowed": rate(allowed),
        "denied": rate(denied),
        "shadow_denied": rate(shadow_denied.sum()),
        "sources": sources.collect::<Value>(),
        "policies": policies.collect::<Value>(),
    })
}

/// Describes what a store did in this time.
pub(super) fn store(counted: &StoreMetrics, over: Duration) -> Value {
    let calls = counted.call_seconds.as_ref();
    let quantile = |share| Some(rounded(calls?.quantile(share)? * 1_000.0));
    let checks = counted.checks_per_call.as_ref();
    let checks = checks.filter(|checks| checks.count() > 0);
    json!({
        "name": counted.name,
        "up": counted.is_up,
        "in_flight": counted.in_flight,
        "calls": calls.map(|calls| rate(calls.count(), over)),
        "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99),
        "checks_per_call": checks.map(|checks| rounded(checks.sum / checks.count() as f64)),
    })
}

/// Returns how many requests were forwarded, and how many were denied for whatever reason.
pub(super) fn allowed_and_denied(requests: &Requests) -> (u64, u64) {
    let allowed = requests.allowed + requests.not_limited + requests.exempt;
    let all: u64 = requests.by_result().map(|(_, count)| count).sum();
    (allowed, all - allowed - requests.cancelled)
}

/// Makes a count to a count per second. Two looks are never at once: the timer is slower than the clock.
fn rate(count: u64, over: Duration) -> f64 {
    rounded(count as f64 / over.as_secs_f64().max(0.001))
}

/// Three digits behind the point are enough for a chart, and short.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
