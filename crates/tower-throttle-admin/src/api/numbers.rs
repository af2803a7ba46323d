//! Metrics, the callers that are denied most, and the denials of a moment ago.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tower_throttle::{
    DenialReason, Offender, RecentDenial,
    inspect::Inspect,
    metrics::{Histogram, StoreMetrics},
};

use super::{counts, epoch_ms, ms};

/// The most denials of all layers.
const MOST_DENIALS: usize = 1_000;

/// A caller that a policy often denies.
pub(crate) struct Top {
    pub(crate) limiter: String,
    pub(crate) offender: Offender,
}

/// A request that a layer denied a moment ago.
pub(crate) struct Denial {
    pub(crate) limiter: String,
    pub(crate) denial: RecentDenial,
}

/// Returns the callers that are denied most.
pub(crate) fn top(inspected: &[Inspect], most: usize) -> Vec<Top> {
    let of = |one: &Inspect| {
        let limiter = one.name().to_owned();
        let offenders = one.top_denied(most).offenders.into_iter();
        offenders.map(move |offender| Top {
            limiter: limiter.clone(),
            offender,
        })
    };
    let mut all: Vec<Top> = inspected.iter().flat_map(of).collect();
    all.sort_by_key(|Top { offender, .. }| Reverse((offender.at_least(), offender.last_seen)));
    all.truncate(most);
    all
}

impl Top {
    pub(super) fn json(&self) -> Value {
        let offender = &self.offender;
        json!({
            "limiter": self.limiter,
            "policy": offender.policy,
            "shadow": offender.shadow,
            "fingerprint": offender.fingerprint.to_string(),
            "name": offender.name,
            "count": offender.count,
            "error": offender.error,
            "last_seen_ms": epoch_ms(offender.last_seen),
        })
    }
}

/// Returns the denials after a time, the latest first.
pub(crate) fn denials(inspected: &[Inspect], since_ms: u64) -> Vec<Denial> {
    let of = |one: &Inspect| {
        let limiter = one.name().to_owned();
        let denials = one.recent_denials().into_iter();
        denials.map(move |denial| Denial {
            limiter: limiter.clone(),
            denial,
        })
    };
    let mut all: Vec<Denial> = inspected.iter().flat_map(of).collect();
    all.retain(|found| epoch_ms(found.denial.at) > since_ms);
    all.sort_by_key(|found| Reverse(found.denial.at));
    all.truncate(MOST_DENIALS);
    all
}

impl Denial {
    /// Returns each policy that denied, and what it calls the caller: `None` if there is no key.
    pub(crate) fn callers(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let mut fingerprints = self.denial.fingerprints.iter();
        let policies = self.denial.policies.iter();
        policies.map(move |policy| (&**policy, fingerprints.next().map(ToString::to_string)))
    }

    pub(super) fn json(&self) -> Value {
        let denial = &self.denial;
        let callers = self.callers();
        let callers = callers
            .map(|(policy, fingerprint)| json!({ "policy": policy, "fingerprint": fingerprint }));
        json!({
            "limiter": self.limiter,
            "at_ms": epoch_ms(denial.at),
            "reason": reason(denial.reason),
            "retry_after_ms": denial.retry_after.map(ms),
            "method": denial.method,
            "route": denial.route,
            "callers": callers.collect::<Value>(),
        })
    }
}

const fn reason(reason: DenialReason) -> &'static str {
    match reason {
        DenialReason::QuotaExceeded => "quota_exceeded",
        DenialReason::Banned => "banned",
        DenialReason::CostImpossible => "cost_impossible",
        DenialReason::KeyMissing => "key_missing",
        DenialReason::Listed => "listed",
        DenialReason::StoreFailed => "store_failed",
        DenialReason::Misconfigured => "misconfigured",
        _ => "other",
    }
}

/// Returns all numbers of a layer or limiter, since it was built.
pub(super) fn metrics(one: &Inspect) -> Value {
    let snapshot = one.metrics();
    let policies = snapshot.policies().zip(snapshot.bans());
    let policies = policies.map(|((name, checks), (_, bans))| {
        json!({ "name": name, "checks": counts(checks.by_result()), "bans": bans })
    });
    json!({
        "limiter": snapshot.limiter(),
        "requests": counts(snapshot.requests.by_result()),
        "decisions": counts(snapshot.decisions.by_source()),
        "policies": policies.collect::<Value>(),
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
        "failures": counts(store.failures.by_kind()),
        "settlements": counts(store.settlements.by_result()),
        "call_seconds": store.call_seconds.as_ref().map(values),
        "checks_per_call": store.checks_per_call.as_ref().map(values),
    })
}

/// Shows how many values were up to each bound, and above the last one.
fn values(values: &Histogram) -> Value {
    json!({ "bounds": values.bounds, "counts": values.counts, "sum": values.sum })
}
