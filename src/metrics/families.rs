//! All metrics: their names, and their samples.

use super::{histogram::Histogram, snapshot::Snapshot, store::StoreMetrics, sums::by_name};

/// A metric family: all samples of one name.
pub(super) struct Family {
    /// Without a suffix, even for a counter.
    pub(super) name: String,
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
    pub(super) value: f64,
}

type Label<'a> = (&'static str, &'a str);

impl Family {
    /// Makes the family of all owners, in their order.
    fn new<T>(kind: Kind, name: &str, owners: &[T], add: impl Fn(&mut Self, &T)) -> Self {
        let mut family = Self {
            name: format!("tower_throttle_{name}"),
            kind,
            help: help(name),
            samples: Vec::new(),
        };
        owners.iter().for_each(|owner| add(&mut family, owner));
        family
    }

    fn add(&mut self, suffix: &'static str, labels: &[Label<'_>], value: f64) {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push(Sample {
            suffix,
            labels: labels.collect(),
            value,
        });
    }

    /// Adds the sample of a counter or a gauge.
    fn count(&mut self, labels: &[Label<'_>], count: u64) {
        let is_counter = self.kind == Kind::Counter;
        let suffix = if is_counter { "_total" } else { "" };
        self.add(suffix, labels, count as f64);
    }

    /// Adds the counts of each value of a label.
    fn counts(
        &mut self,
        owner: &[Label<'_>],
        label: &'static str,
        counts: impl Iterator<Item = (&'static str, u64)>,
    ) {
        for (value, count) in counts {
            self.count(&[owner, &[(label, value)]].concat(), count);
        }
    }

    /// Adds a histogram in the form of Prometheus: each range counts all values up to its bound.
    fn histogram(&mut self, owner: Label<'_>, histogram: &Histogram) {
        let mut up_to = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            up_to += count;
            self.add("_bucket", &[owner, ("le", &bound)], up_to as f64);
        }
        self.add("_sum", &[owner], histogram.sum);
        self.add("_count", &[owner], up_to as f64);
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

fn of_limiters(limiters: &[Snapshot]) -> [Family; 7] {
    fn name(limiter: &Snapshot) -> Label<'_> {
        ("limiter", limiter.limiter())
    }
    [
        Family::new(Kind::Counter, "requests", limiters, |family, one| {
            family.counts(&[name(one)], "result", one.requests.by_result());
        }),
        Family::new(Kind::Counter, "checks", limiters, |family, one| {
            for (policy, counts) in one.policies() {
                let labels = [name(one), ("policy", policy)];
                family.counts(&labels, "result", counts.by_result());
            }
        }),
        Family::new(Kind::Counter, "bans", limiters, |family, one| {
            for (policy, count) in one.bans() {
                family.count(&[name(one), ("policy", policy)], count);
            }
        }),
        Family::new(Kind::Counter, "decisions", limiters, |family, one| {
            family.counts(&[name(one)], "source", one.decisions.by_source());
        }),
        Family::new(Kind::Counter, "unread", limiters, |family, one| {
            family.counts(&[name(one)], "what", one.unread.by_what());
        }),
        Family::new(Kind::Histogram, "wait_seconds", limiters, |family, one| {
            family.histogram(name(one), &one.wait_seconds);
        }),
        Family::new(Kind::Gauge, "waiting", limiters, |family, one| {
            family.count(&[name(one)], one.waiting);
        }),
    ]
}

fn of_stores(stores: &[StoreMetrics]) -> Vec<Family> {
    fn name(store: &StoreMetrics) -> Label<'_> {
        ("store", &store.name)
    }
    let histograms = STORE_HISTOGRAMS.map(|(metric, histogram_of)| {
        Family::new(Kind::Histogram, metric, stores, |family, one| {
            if let Some(histogram) = histogram_of(one) {
                family.histogram(name(one), &histogram);
            }
        })
    });
    let counters = [
        Family::new(Kind::Counter, "store_failures", stores, |family, one| {
            family.counts(&[name(one)], "kind", one.failures.by_kind());
        }),
        Family::new(Kind::Counter, "settlements", stores, |family, one| {
            family.counts(&[name(one)], "result", one.settlements.by_result());
        }),
    ];
    let gauges = STORE_GAUGES.map(|(metric, number_of)| {
        Family::new(Kind::Gauge, metric, stores, |family, one| {
            if let Some(number) = number_of(one) {
                family.count(&[name(one)], number);
            }
        })
    });
    let families = histograms.into_iter().chain(counters).chain(gauges);
    // What no store has, such as the calls of a store in memory, is left out.
    let is_known = |family: &Family| family.kind == Kind::Counter || !family.samples.is_empty();
    families.filter(is_known).collect()
}

type NumberOf<T> = fn(&StoreMetrics) -> Option<T>;

const STORE_HISTOGRAMS: [(&str, NumberOf<Histogram>); 2] = [
    ("store_call_seconds", |store| store.call_seconds.clone()),
    ("store_checks_per_call", |store| {
        store.checks_per_call.clone()
    }),
];

const STORE_GAUGES: [(&str, NumberOf<u64>); 11] = [
    ("store_up", |store| Some(store.is_up.into())),
    ("store_breaker_open", |store| store.breakers_open),
    ("store_in_flight", |store| store.in_flight),
    ("held_units", |store| Some(store.held_units)),
    ("unsettled_units", |store| Some(store.unsettled_units)),
    ("memory_buckets", |store| store.memory_buckets),
    ("local_buckets", |store| Some(store.local_buckets)),
    ("cached_denials", |store| store.cached_denials),
    ("leased_units", |store| store.leased_units),
    ("control_version", |store| store.control_version),
    ("control_problems", |store| store.control_problems),
];

/// Explains a metric to people.
fn help(name: &str) -> &'static str {
    match name {
        "requests" => "Requests by result. Each request is counted once.",
        "checks" => "Checks by policy and result.",
        "bans" => "Bans that a policy started.",
        "decisions" => "Decisions by where they came from.",
        "unread" => "Requests with a text that cannot be read, by what it was to be.",
        "wait_seconds" => "How long callers waited to be admitted, of those that had to wait.",
        "waiting" => "Callers that wait to be admitted.",
        "store_call_seconds" => "How long script calls took.",
        "store_checks_per_call" => "How many checks shared a script call.",
        "store_failures" => "Checks that the store did not decide, by the kind of failure.",
        "settlements" => "Holds by what became of them.",
        "store_up" => "Whether the store decides, as it was logged.",
        "store_breaker_open" => "Servers whose circuit breaker is open.",
        "store_in_flight" => "Checks that wait for the store.",
        "held_units" => "Units of Concurrency policies that this process holds.",
        "unsettled_units" => "Units that requests of this process hold and have not settled.",
        "memory_buckets" => "Buckets and cells that a store in memory keeps.",
        "local_buckets" => "Buckets that this process keeps to decide while the store fails.",
        "cached_denials" => "Denials that are cached.",
        "leased_units" => "Units that this process has leased and not used.",
        "control_version" => "The version of the control document that applies.",
        _ => "Control documents that do not apply as they are stored.",
    }
}
