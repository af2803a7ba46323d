//! The sampler: it looks at the numbers once a second, while an operator looks at the page.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_throttle::{
    inspect::Inspect,
    metrics::{Deltas, Snapshot, StoreMetrics},
};

use super::{
    epoch_ms, ms,
    recent::{Totals, outcomes, outcomes_of},
};
use crate::shared::Shared;

/// The pause between two samples.
const SECOND: Duration = Duration::from_secs(1);
/// How long samples are kept.
const HISTORY: Duration = Duration::from_secs(300);
/// The most bytes of all samples that are kept. A sample takes about 400 bytes, and 80 for each policy.
const MOST_BYTES: usize = 8 << 20;
/// How long sampling continues after the last look.
const LINGER: Duration = Duration::from_secs(15 * 60);

/// Takes a sample a second for all pages that are open, from the first look to 15 minutes after the
/// last one. There is no task before and after.
#[derive(Default)]
pub(crate) struct Samples {
    task: Option<JoinHandle<()>>,
    last_look: Option<Instant>,
    /// The oldest first.
    history: VecDeque<Sample>,
}

/// What happened between two looks.
struct Sample {
    taken: Instant,
    at_ms: u64,
    json: String,
    totals: Totals,
}

impl Shared {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an operator looks, and begins to sample unless that is under way. Outside of a
    /// Tokio runtime nothing is sampled.
    pub(crate) fn look(self: &Arc<Self>) {
        let mut state = self.samples();
        state.last_look = Some(Instant::now());
        let is_under_way = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if let (false, Ok(runtime)) = (is_under_way, Handle::try_current()) {
            state.history.clear();
            state.task = Some(runtime.spawn(run(Arc::downgrade(self))));
        }
    }

    /// Sums up what happened in this time before now. `None` if there was no look before.
    pub(crate) fn totals(&self, time: Duration) -> Option<Totals> {
        let (state, now) = (self.samples(), Instant::now());
        let latest = state.history.iter().rev();
        let mut totals = Totals::default();
        for sample in latest.take_while(|sample| now.duration_since(sample.taken) <= time) {
            totals.add(&sample.totals);
        }
        (totals.seconds > 0.0).then_some(totals)
    }

    /// Returns the samples after the one of this time, as JSON. If that is not kept: all.
    pub(super) fn samples_after(&self, at_ms: u64) -> String {
        let history = &self.samples().history;
        let known = history.iter().position(|sample| sample.at_ms == at_ms);
        let new = history.iter().skip(known.map_or(0, |place| place + 1));
        let new: Vec<_> = new.map(|sample| &*sample.json).collect();
        format!("[{}]", new.join(","))
    }
}

/// Samples until there was no look for a while, or the page is gone.
async fn run(page: Weak<Shared>) {
    let (mut deltas, mut last) = (Deltas::default(), None);
    while let Some(page) = page.upgrade() {
        let last_look = page.samples().last_look;
        if last_look.is_none_or(|last| last.elapsed() >= LINGER) {
            page.samples().history = VecDeque::new();
            return;
        }
        let (inspected, control) = (page.targets.all(), &page.control);
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        let (limiters, stores) = deltas.next(&snapshots);
        let now = Instant::now();
        // The first look has nothing to compare with.
        if let Some(last) = last.replace(now) {
            let version = control.as_ref().map_or(0, |one| one.status().version);
            let sample = Sample::new(now - last, &limiters, &stores, version);
            page.samples().keep(sample);
        }
        drop(page);
        sleep(SECOND).await;
    }
}

impl Sample {
    /// `over`: about a second, and longer if the machine was busy or suspended.
    fn new(over: Duration, limiters: &[Snapshot], stores: &[StoreMetrics], version: u64) -> Self {
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
    /// Keeps a sample, and those before it that are neither too old nor too many.
    fn keep(&mut self, sample: Sample) {
        self.history.push_back(sample);
        let mut bytes = 0;
        let kept = self.history.iter().rev().take_while(|sample| {
            bytes += sample.json.len();
            sample.taken.elapsed() < HISTORY && bytes <= MOST_BYTES
        });
        let dropped = self.history.len() - kept.count();
        self.history.drain(..dropped);
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
