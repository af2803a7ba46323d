//! Metrics, the callers that are denied most, and the denials of a moment ago.

use serde::Serialize;
use tower_throttle::{DenialReason, Offender, RecentDenial, inspect::Inspect, metrics::Snapshot};

use super::{
    Counts, epoch_ms, ms, named,
    stores::{Store, Values},
};

/// All numbers of a layer or limiter, since it was built.
#[derive(Debug, Serialize)]
pub(crate) struct Metrics {
    pub(crate) limiter: String,
    #[serde(serialize_with = "named")]
    pub(crate) requests: Counts,
    #[serde(serialize_with = "named")]
    pub(crate) decisions: Counts,
    pub(crate) policies: Vec<PolicyMetrics>,
    /// How many denials are in no list.
    pub(crate) denials_missed: u64,
    pub(crate) waiting: u64,
    pub(crate) wait_seconds: Values,
    pub(crate) store: Store,
}

#[derive(Debug, Serialize)]
pub(crate) struct PolicyMetrics {
    pub(crate) name: String,
    #[serde(serialize_with = "named")]
    pub(crate) checks: Counts,
    pub(crate) bans: u64,
}

/// A caller that a policy often denies.
#[derive(Debug, Serialize)]
pub(crate) struct Top {
    pub(crate) limiter: String,
    pub(crate) policy: String,
    pub(crate) shadow: bool,
    pub(crate) fingerprint: String,
    pub(crate) name: Option<String>,
    pub(crate) count: u64,
    pub(crate) error: u64,
    pub(crate) last_seen_ms: u64,
}

impl Top {
    /// Returns how often the policy denied the caller for certain.
    pub(crate) const fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

/// A request that a layer denied a moment ago.
#[derive(Debug, Serialize)]
pub(crate) struct Denial {
    pub(crate) limiter: String,
    pub(crate) at_ms: u64,
    pub(crate) reason: &'static str,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) method: Option<&'static str>,
    pub(crate) route: Option<String>,
    pub(crate) callers: Vec<DeniedCaller>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeniedCaller {
    pub(crate) policy: String,
    pub(crate) fingerprint: Option<String>,
}

/// Returns the numbers of all layers and limiters.
pub(crate) fn metrics(inspected: &[Inspect]) -> Vec<Metrics> {
    let one = |one: &Inspect| of(one.metrics(), one.top_denied(0).missed);
    inspected.iter().map(one).collect()
}

/// Returns the callers that are denied most.
pub(crate) fn top(inspected: &[Inspect], most: usize) -> Vec<Top> {
    let mut all: Vec<Top> = Vec::new();
    for one in inspected {
        let limiter = one.name();
        let found = one.top_denied(most).offenders.into_iter();
        all.extend(found.map(|offender| of_offender(limiter.to_owned(), offender)));
    }
    all.sort_by_key(|one| std::cmp::Reverse((one.at_least(), one.last_seen_ms)));
    all.truncate(most);
    all
}

/// The most denials of all layers.
const MOST_DENIALS: usize = 1_000;

/// Returns the denials after a time, the latest first.
pub(crate) fn denials(inspected: &[Inspect], since_ms: u64) -> Vec<Denial> {
    let mut all: Vec<Denial> = Vec::new();
    for one in inspected {
        let limiter = one.name();
        let recent = one.recent_denials().into_iter();
        let recent = recent.map(|found| denial(limiter, found));
        all.extend(recent.filter(|found| found.at_ms > since_ms));
    }
    all.sort_by_key(|found| std::cmp::Reverse(found.at_ms));
    all.truncate(MOST_DENIALS);
    all
}

fn of(snapshot: Snapshot, denials_missed: u64) -> Metrics {
    let policies = snapshot.policies().zip(snapshot.bans());
    Metrics {
        limiter: snapshot.limiter().to_owned(),
        requests: snapshot.requests.by_result().collect(),
        decisions: snapshot.decisions.by_source().collect(),
        policies: policies
            .map(|((name, checks), (_, bans))| PolicyMetrics {
                name: name.to_owned(),
                checks: checks.by_result().collect(),
                bans,
            })
            .collect(),
        denials_missed,
        waiting: snapshot.waiting,
        wait_seconds: snapshot.wait_seconds.into(),
        store: snapshot.store.into(),
    }
}

fn of_offender(limiter: String, offender: Offender) -> Top {
    Top {
        limiter,
        policy: offender.policy,
        shadow: offender.shadow,
        fingerprint: offender.fingerprint.to_string(),
        name: offender.name,
        count: offender.count,
        error: offender.error,
        last_seen_ms: epoch_ms(offender.last_seen),
    }
}

pub(super) fn denial(limiter: &str, denial: RecentDenial) -> Denial {
    // A denial has a fingerprint for each policy, or none.
    let mut fingerprints = denial.fingerprints.iter();
    let policies = denial.policies.into_iter();
    Denial {
        limiter: limiter.into(),
        at_ms: epoch_ms(denial.at),
        reason: reason(denial.reason),
        retry_after_ms: denial.retry_after.map(ms),
        method: denial.method,
        route: denial.route,
        callers: policies
            .map(|policy| DeniedCaller {
                policy,
                fingerprint: fingerprints.next().map(ToString::to_string),
            })
            .collect(),
    }
}

pub(crate) const fn reason(reason: DenialReason) -> &'static str {
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
