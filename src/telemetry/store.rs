//! Under `tower_throttle::store`: outages of the store, and their ends.

use crate::StoreError;

#[cfg(feature = "tracing")]
const TARGET: &str = "tower_throttle::store";

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &StoreError) {
    tell!(
        error,
        kind = error.kind_name(),
        "cannot connect to Redis ({error}); retrying in the background"
    );
}

pub(crate) fn store_failed(error: &StoreError) {
    tell!(
        error,
        kind = error.kind_name(),
        "rate-limit store unavailable ({error}); applying `on_store_failure`"
    );
}

/// Logs another cause of the same outage. The first cause may be the least exact: a server that has
/// just died is silent at first.
pub(crate) fn store_fails_otherwise(error: &StoreError) {
    tell!(
        error,
        kind = error.kind_name(),
        "rate-limit store still unavailable, new error ({error})"
    );
}

pub(crate) fn store_recovered() {
    tell!(info, "rate-limit store recovered");
}

/// Logs checks without a decision while the store is healthy: an overload, or unexpected data.
pub(crate) fn shed(error: &StoreError) {
    tell!(
        warn,
        kind = error.kind_name(),
        "rate-limit store left checks undecided ({error}); allowing none unchecked"
    );
}
