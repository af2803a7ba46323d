//! The numbers of stores.

use serde::Serialize;
use serde_json::{Value, json};
use tower_throttle::metrics::{Histogram, StoreMetrics};

use super::{Counts, counts};

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
    pub(crate) failures: Counts,
}

/// The numbers of a store.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    #[serde(flatten)]
    status: StoreStatus,
    leased_units: Option<u64>,
    held_units: u64,
    unsettled_units: u64,
    settlements: Counts,
    call_seconds: Option<Value>,
    checks_per_call: Option<Value>,
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
            failures: counts(store.failures.by_kind()),
        }
    }
}

impl From<&StoreMetrics> for Store {
    fn from(store: &StoreMetrics) -> Self {
        Self {
            status: store.into(),
            leased_units: store.leased_units,
            held_units: store.held_units,
            unsettled_units: store.unsettled_units,
            settlements: counts(store.settlements.by_result()),
            call_seconds: store.call_seconds.as_ref().map(values),
            checks_per_call: store.checks_per_call.as_ref().map(values),
        }
    }
}

/// Shows how many values were up to each bound, and above the last one.
pub(super) fn values(values: &Histogram) -> Value {
    json!({ "bounds": values.bounds, "counts": values.counts, "sum": values.sum })
}
