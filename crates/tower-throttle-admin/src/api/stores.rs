//! The numbers of stores.

use serde::Serialize;

use super::{Counts, named};
use tower_throttle::metrics::{Histogram, StoreMetrics};

/// A store, or all of one name.
#[derive(Debug, Serialize)]
pub(crate) struct StoreStatus {
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) breakers_open: Option<u64>,
    pub(crate) in_flight: Option<u64>,
    pub(crate) buckets: Option<u64>,
    pub(crate) local_buckets: u64,
    pub(crate) cached_denials: Option<u64>,
    #[serde(serialize_with = "named")]
    pub(crate) failures: Counts,
}

/// The numbers of a store.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    #[serde(flatten)]
    pub(crate) status: StoreStatus,
    pub(crate) leased_units: Option<u64>,
    pub(crate) held_units: u64,
    pub(crate) unsettled_units: u64,
    #[serde(serialize_with = "named")]
    pub(crate) settlements: Counts,
    pub(crate) call_seconds: Option<Values>,
    pub(crate) checks_per_call: Option<Values>,
}

/// How many values were up to each bound, and above the last one.
#[derive(Debug, Serialize)]
pub(crate) struct Values {
    pub(crate) bounds: Vec<f64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl From<&StoreMetrics> for StoreStatus {
    fn from(store: &StoreMetrics) -> Self {
        Self {
            name: store.name.clone(),
            up: store.is_up,
            breakers_open: store.breakers_open,
            in_flight: store.in_flight,
            buckets: store.memory_buckets,
            local_buckets: store.local_buckets,
            cached_denials: store.cached_denials,
            failures: store.failures.by_kind().collect(),
        }
    }
}

impl From<StoreMetrics> for Store {
    fn from(store: StoreMetrics) -> Self {
        Self {
            status: StoreStatus::from(&store),
            leased_units: store.leased_units,
            held_units: store.held_units,
            unsettled_units: store.unsettled_units,
            settlements: store.settlements.by_result().collect(),
            call_seconds: store.call_seconds.map(Values::from),
            checks_per_call: store.checks_per_call.map(Values::from),
        }
    }
}

impl From<Histogram> for Values {
    fn from(values: Histogram) -> Self {
        Self {
            bounds: values.bounds,
            counts: values.counts,
            sum: values.sum,
        }
    }
}
