//! All metrics: their names, and their samples.

use super::{histogram::Histogram, snapshot::Snapshot, store::StoreMetrics, sums::by_name};

/// A metric family: all samples of one name.
pub(super) struct Family {
    /// Without a suffix, even for a counter.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct Sample {
    /// Belongs to the kind, as `_total` does to a counter.
    pub(super) suffix: &'static str,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

pub(super) enum Value {
    Count(u64),
    Number(f64),
}

impl Family {
    fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            samples: Vec::new(),
        }
    }

    fn add(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: Value) {
        let labels = labels.iter();
        self.samples.push(Sample {
            suffix,
            labels: labels
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
            value,
        });
    }

    /// Adds the sample of a counter or a gauge.
    fn count(&mut self, labels: &[(&'static str, &str)], count: u64) {
        let is_counter = self.kind == Kind::Counter;
        let suffix = if is_counter { "_total" } else { "" };
        self.add(suffix, labels, Value::Count(count));
    }

    /// Adds a histogram in the form of Prometheus: each range counts all values up to its bound.
    fn histogram(&mut self, owner: (&'static str, &str), histogram: &Histogram) {
        let mut up_to = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            up_to += count;
            self.add("_bucket", &[owner, ("le", &bound)], Value::Count(up_to));
        }
        self.add("_sum", &[owner], Value::Number(histogram.sum));
        self.add("_count", &[owner], Value::Count(up_to));
    }
}

/// Returns all metrics of these layers and limiters, and of their stores.
pub(super) fn all<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Vec<Family> {
    let snapshots: Vec<_> = snapshots.into_iter().collect();
    let stores = by_name(snapshots.iter().map(|snapshot| &snapshot.store));
    let mut families = Vec::from(of_limiters(&by_name(snapshots)));
    families.extend(of_stores(&stores));
    families
}

fn of_limiters(limiters: &[Snapshot]) -> [Family; 6] {
    let mut requests = Family::new(
        Kind::Counter,
        "tower_throttle_requests",
        "Requests by result. Each request is counted once.",
    );
    let mut checks = Family::new(
        Kind::Counter,
        "tower_throttle_checks",
        "Checks by policy and result.",
    );
    let mut bans = Family::new(
        Kind::Counter,
        "tower_throttle_bans",
        "Bans that a policy started.",
    );
    let mut decisions = Family::new(
        Kind::Counter,
        "tower_throttle_decisions",
        "Decisions by where they came from.",
    );
    let mut wait_seconds = Family::new(
        Kind::Histogram,
        "tower_throttle_wait_seconds",
        "How long callers waited to be admitted, of those that had to wait.",
    );
    let mut waiting = Family::new(
        Kind::Gauge,
        "tower_throttle_waiting",
        "Callers that wait to be admitted.",
    );
    for limiter in limiters {
        let name = ("limiter", limiter.limiter());
        for (result, count) in limiter.requests.by_result() {
            requests.count(&[name, ("result", result)], count);
        }
        for (policy, counts) in limiter.policies() {
            for (result, count) in counts.by_result() {
                checks.count(&[name, ("policy", policy), ("result", result)], count);
            }
        }
        for (policy, count) in limiter.bans() {
            bans.count(&[name, ("policy", policy)], count);
        }
        for (source, count) in limiter.decisions.by_source() {
            decisions.count(&[name, ("source", source)], count);
        }
        wait_seconds.histogram(name, &limiter.wait_seconds);
        waiting.count(&[name], limiter.waiting);
    }
    [requests, checks, bans, decisions, wait_seconds, waiting]
}

/// Returns the metrics of stores. A histogram or gauge that no store has is left out.
fn of_stores(stores: &[StoreMetrics]) -> Vec<Family> {
    let mut families = Vec::new();
    for (name, histogram_of, help) in STORE_HISTOGRAMS {
        let mut family = Family::new(Kind::Histogram, name, help);
        for store in stores {
            if let Some(histogram) = histogram_of(store) {
                family.histogram(("store", &store.name), &histogram);
            }
        }
        families.push(family);
    }
    let mut failures = Family::new(
        Kind::Counter,
        "tower_throttle_store_failures",
        "Checks that the store did not decide, by the kind of failure.",
    );
    let mut settlements = Family::new(
        Kind::Counter,
        "tower_throttle_settlements",
        "Holds by what became of them.",
    );
    for store in stores {
        let name = ("store", &*store.name);
        for (kind, count) in store.failures.by_kind() {
            failures.count(&[name, ("kind", kind)], count);
        }
        for (result, count) in store.settlements.by_result() {
            settlements.count(&[name, ("result", result)], count);
        }
    }
    families.extend([failures, settlements]);
    for (name, number_of, help) in STORE_GAUGES {
        let mut family = Family::new(Kind::Gauge, name, help);
        for store in stores {
            if let Some(number) = number_of(store) {
                family.count(&[("store", &store.name)], number);
            }
        }
        families.push(family);
    }
    families.retain(|family| family.kind == Kind::Counter || !family.samples.is_empty());
    families
}

/// Reads a number of a store, if it has it.
type NumberOf<T> = fn(&StoreMetrics) -> Option<T>;

const STORE_HISTOGRAMS: [(&str, NumberOf<Histogram>, &str); 2] = [
    (
        "tower_throttle_store_call_seconds",
        |store| store.call_seconds.clone(),
        "How long script calls took.",
    ),
    (
        "tower_throttle_store_checks_per_call",
        |store| store.checks_per_call.clone(),
        "How many checks shared a script call.",
    ),
];

const STORE_GAUGES: [(&str, NumberOf<u64>, &str); 11] = [
    (
        "tower_throttle_store_up",
        |store| Some(store.is_up.into()),
        "Whether the store decides, as it was logged.",
    ),
    (
        "tower_throttle_store_breaker_open",
        |store| store.breakers_open,
        "Servers whose circuit breaker is open.",
    ),
    (
        "tower_throttle_store_in_flight",
        |store| store.in_flight,
        "Checks that wait for the store.",
    ),
    (
        "tower_throttle_held_units",
        |store| Some(store.held_units),
        "Units of Concurrency policies that this process holds.",
    ),
    (
        "tower_throttle_unsettled_units",
        |store| Some(store.unsettled_units),
        "Units that requests of this process hold and have not settled.",
    ),
    (
        "tower_throttle_memory_buckets",
        |store| store.memory_buckets,
        "Buckets and cells that a store in memory keeps.",
    ),
    (
        "tower_throttle_local_buckets",
        |store| Some(store.local_buckets),
        "Buckets that this process keeps to decide while the store fails.",
    ),
    (
        "tower_throttle_cached_denials",
        |store| store.cached_denials,
        "Denials that are cached.",
    ),
    (
        "tower_throttle_leased_units",
        |store| store.leased_units,
        "Units that this process has leased and not used.",
    ),
    (
        "tower_throttle_control_version",
        |store| store.control_version,
        "The version of the control document that applies.",
    ),
    (
        "tower_throttle_control_problems",
        |store| store.control_problems,
        "Control documents that do not apply as they are stored.",
    ),
];
