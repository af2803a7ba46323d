//! [`Sample`]: what happened in a second.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use tokio::time::Instant;
use tower_throttle::{
    control::Control,
    inspect::{DenialMark, Inspect},
    metrics::{Checks, Deltas, Requests, Snapshot, StoreMetrics},
};

use super::{
    Counts, epoch_ms,
    numbers::{Denial, denial},
    recent::Totals,
};

/// The most denials in a sample. Of more, the latest.
pub(super) const MOST_DENIALS: usize = 50;

/// What happened between two looks. Counts are per second.
#[derive(Debug, Serialize)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    /// How long it took: about a second, and longer if the machine was busy or suspended.
    pub(super) over_ms: u64,
    pub(super) limiters: Vec<LimiterRates>,
    pub(super) stores: Vec<StoreRates>,
    pub(super) denials: Vec<Denial>,
    /// The version of the control document.
    pub(super) version: u64,
    /// For the page.
    #[serde(skip)]
    pub(super) totals: Totals,
}

#[derive(Debug, Serialize)]
pub(super) struct LimiterRates {
    name: String,
    allowed: f64,
    denied: f64,
    shadow_denied: f64,
    sources: Counts<f64>,
    policies: Vec<PolicyRates>,
}

#[derive(Debug, Serialize)]
struct PolicyRates {
    name: String,
    allowed: f64,
    denied: f64,
    shadow_denied: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct StoreRates {
    name: String,
    up: bool,
    in_flight: Option<u64>,
    calls: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    checks_per_call: Option<f64>,
}

/// What was there at the last look.
pub(super) struct LastLook {
    at: Instant,
    deltas: Deltas,
    /// How far the denials of each layer were read.
    denials: HashMap<usize, DenialMark>,
}

impl LastLook {
    /// Looks for the first time.
    pub(super) fn new(inspected: &[Inspect]) -> Self {
        let mut first = Self {
            at: Instant::now(),
            deltas: Deltas::default(),
            denials: HashMap::new(),
        };
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        first.deltas.next(&snapshots);
        first.new_denials(inspected);
        first
    }

    /// Looks again.
    pub(super) fn sample(&mut self, inspected: &[Inspect], control: Option<&Control>) -> Sample {
        let now = Instant::now();
        let over = now.duration_since(std::mem::replace(&mut self.at, now));
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        let (limiters, stores) = self.deltas.next(&snapshots);
        let rate = Rate::over(over);
        let totals = Totals::new(over.as_secs_f64(), &limiters, &stores);
        Sample {
            at_ms: epoch_ms(SystemTime::now()),
            over_ms: super::ms(over),
            limiters: limiters.iter().map(|one| rate.of_limiter(one)).collect(),
            stores: stores.into_iter().map(|one| rate.of_store(one)).collect(),
            denials: self.new_denials(inspected),
            version: control.map_or(0, |control| control.status().version),
            totals,
        }
    }

    /// Returns the denials since the last look, the latest first. A layer that was not there then
    /// has none yet.
    fn new_denials(&mut self, inspected: &[Inspect]) -> Vec<Denial> {
        let mut former = std::mem::take(&mut self.denials);
        let mut found = Vec::new();
        for one in inspected {
            let known = former.remove(&one.id());
            let mut mark = known.unwrap_or_default();
            let new = one.denials_since(&mut mark);
            self.denials.insert(one.id(), mark);
            if known.is_some() {
                let new = new.into_iter().take(MOST_DENIALS);
                found.extend(new.map(|new| denial(one.name(), new)));
            }
        }
        found.sort_by_key(|denial| std::cmp::Reverse(denial.at_ms));
        found.truncate(MOST_DENIALS);
        found
    }
}

/// Makes counts to counts per second.
#[derive(Clone, Copy)]
struct Rate {
    seconds: f64,
}

impl Rate {
    fn over(time: Duration) -> Self {
        // Two looks are never at once: the timer is slower than the clock.
        Self {
            seconds: time.as_secs_f64().max(0.001),
        }
    }

    fn of(self, count: u64) -> f64 {
        rounded(count as f64 / self.seconds)
    }

    fn of_limiter(self, counted: &Snapshot) -> LimiterRates {
        let policies: Vec<_> = counted.policies().collect();
        let shadow_denied = policies.iter().map(|(_, checks)| checks.shadow_denied);
        let (allowed, denied) = allowed_and_denied(&counted.requests);
        LimiterRates {
            name: counted.limiter().into(),
            allowed: self.of(allowed),
            denied: self.of(denied),
            shadow_denied: self.of(shadow_denied.sum()),
            sources: counted
                .decisions
                .by_source()
                .map(|(source, count)| (source, self.of(count)))
                .collect(),
            policies: policies
                .into_iter()
                .map(|(name, checks)| self.of_policy(name, checks))
                .collect(),
        }
    }

    fn of_policy(self, name: &str, checks: &Checks) -> PolicyRates {
        PolicyRates {
            name: name.into(),
            allowed: self.of(checks.allowed + checks.near),
            denied: self.of(checks.denied + checks.impossible + checks.key_missing),
            shadow_denied: self.of(checks.shadow_denied),
        }
    }

    fn of_store(self, counted: StoreMetrics) -> StoreRates {
        let calls = counted.call_seconds.as_ref();
        let quantile = |share| Some(rounded(calls?.quantile(share)? * 1_000.0));
        let (p50_ms, p99_ms) = (quantile(0.5), quantile(0.99));
        let checks = counted.checks_per_call.as_ref();
        let checks = checks.filter(|checks| checks.count() > 0);
        StoreRates {
            up: counted.is_up,
            in_flight: counted.in_flight,
            calls: calls.map(|calls| self.of(calls.count())),
            p50_ms,
            p99_ms,
            checks_per_call: checks.map(|checks| rounded(checks.sum / checks.count() as f64)),
            name: counted.name,
        }
    }
}

/// Returns how many requests were forwarded, and how many were denied for whatever reason.
pub(super) fn allowed_and_denied(requests: &Requests) -> (u64, u64) {
    let allowed = requests.allowed + requests.not_limited + requests.exempt;
    let denied = requests.denied
        + requests.banned
        + requests.impossible
        + requests.key_missing
        + requests.listed
        + requests.store_failed
        + requests.misconfigured;
    (allowed, denied)
}

/// Three digits behind the point are enough for a chart, and short.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
