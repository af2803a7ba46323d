//! All metrics: their names, and where their samples come from.

use super::{histogram::Histogram, snapshot::Snapshot, store::StoreMetrics, sums::by_name};

/// A metric family: all samples of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Family {
    /// Has no suffix, also if it is a counter.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Count(u64),
    Number(f64),
}

type Label<'a> = (&'static str, &'a str);

/// Takes all samples: a text, or a recorder.
pub(super) trait Sink {
    /// Begins a family, to which the next samples belong. Each family begins once.
    fn family(&mut self, family: Family);

    /// Adds a sample. `suffix` belongs to the kind, as `_total` does to a counter.
    fn sample(&mut self, suffix: &'static str, labels: &[Label<'_>], value: Value);
}

/// Writes all metrics of these layers and limiters, and of their stores.
pub(super) fn write_all<'a>(
    sink: &mut impl Sink,
    snapshots: impl IntoIterator<Item = &'a Snapshot>,
) {
    let snapshots: Vec<_> = snapshots.into_iter().collect();
    let stores = by_name(snapshots.iter().map(|snapshot| &snapshot.store));
    let limiters = by_name(snapshots);
    write_counts(sink, &limiters);
    write_waits(sink, &limiters);
    write_stores(sink, &stores);
}

/// Writes what each limiter counted of its requests.
fn write_counts(sink: &mut impl Sink, limiters: &[Snapshot]) {
    sink.family(Family {
        name: "tower_throttle_requests",
        kind: Kind::Counter,
        help: "Requests by result. Each request is counted once.",
    });
    for limiter in limiters {
        for (result, count) in limiter.requests.by_result() {
            let labels = [("limiter", limiter.limiter()), ("result", result)];
            sink.sample("_total", &labels, Value::Count(count));
        }
    }
    sink.family(Family {
        name: "tower_throttle_checks",
        kind: Kind::Counter,
        help: "Checks by policy and result.",
    });
    for limiter in limiters {
        for (policy, checks) in limiter.policies() {
            for (result, count) in checks.by_result() {
                let limiter = ("limiter", limiter.limiter());
                let labels = [limiter, ("policy", policy), ("result", result)];
                sink.sample("_total", &labels, Value::Count(count));
            }
        }
    }
    sink.family(Family {
        name: "tower_throttle_bans",
        kind: Kind::Counter,
        help: "Bans that a policy started.",
    });
    for limiter in limiters {
        for (policy, count) in limiter.bans() {
            let labels = [("limiter", limiter.limiter()), ("policy", policy)];
            sink.sample("_total", &labels, Value::Count(count));
        }
    }
    sink.family(Family {
        name: "tower_throttle_decisions",
        kind: Kind::Counter,
        help: "Decisions by where they came from.",
    });
    for limiter in limiters {
        for (source, count) in limiter.decisions.by_source() {
            let labels = [("limiter", limiter.limiter()), ("source", source)];
            sink.sample("_total", &labels, Value::Count(count));
        }
    }
}

/// Writes how long the callers of each limiter waited, and how many wait.
fn write_waits(sink: &mut impl Sink, limiters: &[Snapshot]) {
    sink.family(Family {
        name: "tower_throttle_wait_seconds",
        kind: Kind::Histogram,
        help: "How long callers waited to be admitted, of those that had to wait.",
    });
    for limiter in limiters {
        write_histogram(sink, ("limiter", limiter.limiter()), &limiter.wait_seconds);
    }
    sink.family(Family {
        name: "tower_throttle_waiting",
        kind: Kind::Gauge,
        help: "Callers that wait to be admitted.",
    });
    for limiter in limiters {
        let labels = [("limiter", limiter.limiter())];
        sink.sample("", &labels, Value::Count(limiter.waiting));
    }
}

type HistogramOf = fn(&StoreMetrics) -> Option<&Histogram>;
type NumberOf = fn(&StoreMetrics) -> Option<u64>;

const STORE_HISTOGRAMS: [(&str, HistogramOf, &str); 2] = [
    (
        "tower_throttle_store_call_seconds",
        |store| store.call_seconds.as_ref(),
        "How long script calls took.",
    ),
    (
        "tower_throttle_store_checks_per_call",
        |store| store.checks_per_call.as_ref(),
        "How many checks shared a script call.",
    ),
];

const STORE_GAUGES: [(&str, NumberOf, &str); 11] = [
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

/// Writes the numbers of each store. A family that no store has is left out.
fn write_stores(sink: &mut impl Sink, stores: &[StoreMetrics]) {
    for (name, histogram_of, help) in STORE_HISTOGRAMS {
        let found = stores.iter();
        let found = found.filter_map(|store| Some((&*store.name, histogram_of(store)?)));
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            let kind = Kind::Histogram;
            sink.family(Family { name, kind, help });
        }
        for (store, histogram) in found {
            write_histogram(sink, ("store", store), histogram);
        }
    }
    sink.family(Family {
        name: "tower_throttle_store_failures",
        kind: Kind::Counter,
        help: "Checks that the store did not decide, by the kind of failure.",
    });
    for store in stores {
        for (kind, count) in store.failures.by_kind() {
            let labels = [("store", &*store.name), ("kind", kind)];
            sink.sample("_total", &labels, Value::Count(count));
        }
    }
    sink.family(Family {
        name: "tower_throttle_settlements",
        kind: Kind::Counter,
        help: "Holds by what became of them.",
    });
    for store in stores {
        for (result, count) in store.settlements.by_result() {
            let labels = [("store", &*store.name), ("result", result)];
            sink.sample("_total", &labels, Value::Count(count));
        }
    }
    for (name, number_of, help) in STORE_GAUGES {
        let found = stores.iter();
        let found = found.filter_map(|store| Some((&*store.name, number_of(store)?)));
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            let kind = Kind::Gauge;
            sink.family(Family { name, kind, help });
        }
        for (store, number) in found {
            sink.sample("", &[("store", store)], Value::Count(number));
        }
    }
}

/// Writes a histogram in the form of Prometheus: each range counts all values up to its bound.
fn write_histogram(sink: &mut impl Sink, owner: Label<'_>, histogram: &Histogram) {
    let mut up_to = 0;
    let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
    let bounds = bounds.chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(&histogram.counts) {
        up_to += count;
        sink.sample("_bucket", &[owner, ("le", &bound)], Value::Count(up_to));
    }
    sink.sample("_sum", &[owner], Value::Number(histogram.sum));
    sink.sample("_count", &[owner], Value::Count(up_to));
}
