//! Metrics, the callers that are denied most, and the denials of a moment ago.

use serde::Serialize;
use serde_json::{Value, json};
use tower_throttle::{DenialReason, Offender, RecentDenial, inspect::Inspect};

use super::{
    counts, epoch_ms, ms,
    stores::{Store, values},
};

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

impl Denial {
    /// Returns whether only the time differs.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let own = (
            &self.limiter,
            self.reason,
            self.method,
            &self.route,
            &self.callers,
        );
        let others = (
            &other.limiter,
            other.reason,
            other.method,
            &other.route,
            &other.callers,
        );
        own == others
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeniedCaller {
    pub(crate) policy: String,
    pub(crate) fingerprint: Option<String>,
}

/// Returns all numbers of all layers and limiters, each since it was built.
pub(crate) fn metrics(inspected: &[Inspect]) -> Vec<Value> {
    let one = |one: &Inspect| {
        let snapshot = one.metrics();
        let policies = snapshot.policies().zip(snapshot.bans());
        let policies = policies.map(|((name, checks), (_, bans))| {
            json!({ "name": name, "checks": counts(checks.by_result()), "bans": bans })
        });
        json!({
            "limiter": snapshot.limiter(),
            "requests": counts(snapshot.requests.by_result()),
            "decisions": counts(snapshot.decisions.by_source()),
            "policies": policies.collect::<Vec<_>>(),
            "denials_missed": one.top_denied(0).missed,
            "waiting": snapshot.waiting,
            "wait_seconds": values(&snapshot.wait_seconds),
            "store": Store::from(&snapshot.store),
        })
    };
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
