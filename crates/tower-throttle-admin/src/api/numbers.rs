//! Metrics, the callers that are denied most, and the denials of a moment ago.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tower_throttle::{
    DenialReason, Offender, RecentDenial,
    inspect::Inspect,
    metrics::{Histogram, StoreMetrics},
};

use crate::time::{epoch_ms, ms};

/// The most denials of all layers.
const MOST_DENIALS: usize = 1_000;

/// Returns the callers that are denied most, each with the name of its layer or limiter.
pub(crate) fn top(inspected: &[Inspect], most: usize) -> Vec<(String, Offender)> {
    let mut all = of_all(inspected, |one| one.top_denied(most).offenders);
    all.sort_by_key(|(_, offender)| Reverse((offender.at_least(), offender.last_seen)));
    all.truncate(most);
    all
}

/// Returns the denials after a time, the latest first, each with the name of its layer.
pub(crate) fn denials(inspected: &[Inspect], since_ms: u64) -> Vec<(String, RecentDenial)> {
    let mut all = of_all(inspected, Inspect::recent_denials);
    all.retain(|(_, denial)| epoch_ms(denial.at) > since_ms);
    all.sort_by_key(|(_, denial)| Reverse(denial.at));
    all.truncate(MOST_DENIALS);
    all
}

/// Returns what each layer or limiter lists, with its name.
fn of_all<T>(inspected: &[Inspect], list: impl Fn(&Inspect) -> Vec<T>) -> Vec<(String, T)> {
    let each = inspected.iter().flat_map(|one| {
        let listed = list(one).into_iter();
        listed.map(|item| (one.name().to_owned(), item))
    });
    each.collect()
}

pub(super) fn top_json((limiter, offender): &(String, Offender)) -> Value {
    json!({
        "limiter": limiter,
        "policy": offender.policy,
        "shadow": offender.shadow,
        "fingerprint": offender.fingerprint.to_string(),
        "name": offender.name,
        "count": offender.count,
        "error": offender.error,
        "last_seen_ms": epoch_ms(offender.last_seen),
    })
}

pub(super) fn denial_json((limiter, denial): &(String, RecentDenial)) -> Value {
    let callers = callers(denial);
    let callers = callers
        .map(|(policy, fingerprint)| json!({ "policy": policy, "fingerprint": fingerprint }));
    json!({
        "limiter": limiter,
        "at_ms": epoch_ms(denial.at),
        "reason": reason(denial.reason).0,
        "retry_after_ms": denial.retry_after.map(ms),
        "method": denial.method,
        "route": denial.route,
        "callers": callers.collect::<Value>(),
    })
}

/// Returns each policy that denied, and its fingerprint of the caller: `None` if there is no key.
pub(crate) fn callers(denial: &RecentDenial) -> impl Iterator<Item = (&str, Option<String>)> {
    let mut fingerprints = denial.fingerprints.iter();
    let policies = denial.policies.iter();
    policies.map(move |policy| (&**policy, fingerprints.next().map(ToString::to_string)))
}

/// Returns the name of a reason in the API, and the words for it on the page.
pub(crate) const fn reason(reason: DenialReason) -> (&'static str, &'static str) {
    match reason {
        DenialReason::QuotaExceeded => ("quota_exceeded", "no room"),
        DenialReason::Banned => ("banned", "banned"),
        DenialReason::CostImpossible => ("cost_impossible", "can never fit"),
        DenialReason::KeyMissing => ("key_missing", "no key"),
        DenialReason::Listed => ("listed", "on the deny list"),
        DenialReason::StoreFailed => ("store_failed", "store failed"),
        DenialReason::Misconfigured => ("misconfigured", "misconfigured"),
        _ => ("other", "other"),
    }
}

/// Returns all numbers of a layer or limiter, since it was built.
pub(super) fn metrics(one: &Inspect) -> Value {
    let snapshot = one.metrics();
    let policies = snapshot.policies().zip(snapshot.bans());
    let policies = policies.map(|((name, checks), (_, bans))| {
        json!({ "name": name, "checks": checks.by_result().collect::<Value>(), "bans": bans })
    });
    json!({
        "limiter": snapshot.limiter(),
        "requests": snapshot.requests.by_result().collect::<Value>(),
        "decisions": snapshot.decisions.by_source().collect::<Value>(),
        "policies": policies.collect::<Value>(),
        "unread": snapshot.unread.by_what().collect::<Value>(),
        "denials_missed": one.top_denied(0).missed,
        "waiting": snapshot.waiting,
        "wait_seconds": values(&snapshot.wait_seconds),
        "store": store(&snapshot.store),
    })
}

/// Returns the numbers of a store, or of all stores of one name.
pub(super) fn store(store: &StoreMetrics) -> Value {
    json!({
        "name": store.name,
        "up": store.is_up,
        "breakers_open": store.breakers_open,
        "in_flight": store.in_flight,
        "buckets": store.memory_buckets,
        "local_buckets": store.local_buckets,
        "cached_denials": store.cached_denials,
        "leased_units": store.leased_units,
        "held_units": store.held_units,
        "unsettled_units": store.unsettled_units,
        "failures": store.failures.by_kind().collect::<Value>(),
        "settlements": store.settlements.by_result().collect::<Value>(),
        "call_seconds": store.call_seconds.as_ref().map(values),
        "checks_per_call": store.checks_per_call.as_ref().map(values),
    })
}

/// Shows how many values were up to each bound, and above the last one.
fn values(values: &Histogram) -> Value {
    json!({ "bounds": values.bounds, "counts": values.counts, "sum": values.sum })
}
