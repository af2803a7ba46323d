//! [`Samples`]: the counts of each of the last seconds.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};
use tower_throttle::metrics::{Snapshot, StoreMetrics};

use super::recent::{Totals, outcomes, outcomes_of};
use crate::time::{epoch_ms, ms};

/// How long samples are kept.
const HISTORY: Duration = Duration::from_secs(300);
/// The most bytes of all samples that are kept. A sample takes about 400 bytes, and 80 for each policy.
const MOST_BYTES: usize = 8 << 20;

/// The latest samples, for all pages that are open.
#[derive(Default)]
pub(crate) struct Samples {
    /// The task that takes them.
    pub(super) task: Option<JoinHandle<()>>,
    pub(super) last_look: Option<Instant>,
    /// The oldest first.
    history: VecDeque<Sample>,
}

/// What happened between two looks.
pub(super) struct Sample {
    taken: Instant,
    at_ms: u64,
    json: String,
    totals: Totals,
}

impl Sample {
    /// `over`: about a second, and longer if the machine was busy or suspended.
    pub(super) fn new(
        over: Duration,
        limiters: &[Snapshot],
        stores: &[StoreMetrics],
        version: u64,
    ) -> Self {
        let at_ms = epoch_ms(SystemTime::now());
        let json = json!({
            "at_ms": at_ms,
            "over_ms": ms(over),
            "limiters": limiters.iter().map(|one| limiter(one, over)).collect::<Value>(),
            "stores": stores.iter().map(|one| store(one, over)).collect::<Value>(),
            "version": version,
        });
        Self {
            taken: Instant::now(),
            at_ms,
            json: json.to_string(),
            totals: Totals::new(over.as_secs_f64(), limiters, stores),
        }
    }
}

impl Samples {
    /// Sums up what happened in this time before now. `None` if there was no look before.
    pub(super) fn totals(&self, time: Duration) -> Option<Totals> {
        let now = Instant::now();
        let latest = self.history.iter().rev();
        let mut totals = Totals::default();
        for sample in latest.take_while(|sample| now.duration_since(sample.taken) <= time) {
            totals.add(&sample.totals);
        }
        (totals.seconds > 0.0).then_some(totals)
    }

    /// Returns the samples after the one of this time, as JSON. If that is not kept: all.
    pub(super) fn after(&self, at_ms: u64) -> String {
        let known = self.history.iter().position(|sample| sample.at_ms == at_ms);
        let new = self.history.iter().skip(known.map_or(0, |place| place + 1));
        let new: Vec<_> = new.map(|sample| &*sample.json).collect();
        format!("[{}]", new.join(","))
    }

    /// Keeps a sample, and those before it that are neither too old nor too many.
    pub(super) fn keep(&mut self, sample: Sample) {
        self.history.push_back(sample);
        let mut bytes = 0;
        let kept = self.history.iter().rev().take_while(|sample| {
            bytes += sample.json.len();
            sample.taken.elapsed() < HISTORY && bytes <= MOST_BYTES
        });
        let dropped = self.history.len() - kept.count();
        self.history.drain(..dropped);
    }

    pub(super) fn clear(&mut self) {
        self.history = VecDeque::new();
    }
}

/// Describes what a layer or limiter counted in this time.
fn limiter(counted: &Snapshot, over: Duration) -> Value {
    let rate = |count| rate(count, over);
    let [allowed, denied, shadow_denied] = outcomes(counted).map(rate);
    let sources = counted.decisions.by_source();
    let sources = sources.map(|(source, count)| (source.to_owned(), Value::from(rate(count))));
    let policies = counted.policies().map(|(name, checks)| {
        let [allowed, denied, shadow] = outcomes_of(checks).map(rate);
        json!({ "name": name, "allowed": allowed, "denied": denied, "shadow_denied": shadow })
    });
    json!({
        "name": counted.limiter(),
        "allowed": allowed,
        "denied": denied,
        "shadow_denied": shadow_denied,
        "sources": sources.collect::<Value>(),
        "policies": policies.collect::<Value>(),
    })
}

/// Describes what a store did in this time.
fn store(counted: &StoreMetrics, over: Duration) -> Value {
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

/// Makes a count to a count per second. Two looks are never at once: the timer is slower than the clock.
fn rate(count: u64, over: Duration) -> f64 {
    rounded(count as f64 / over.as_secs_f64().max(0.001))
}

/// Three digits behind the point are enough for a chart, and short.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
