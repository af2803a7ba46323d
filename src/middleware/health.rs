//! What was logged of the store's failures, so that each change is said once.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use crate::{StoreError, telemetry};

/// How the store does, as far as it was logged.
pub(super) struct Health {
    started: Instant,
    is_failing: AtomicBool,
    last_failure_ms: AtomicU64,
    is_miswired: AtomicBool,
}

/// The store must answer for so long before it counts as well again: one line
/// for each change of state, and not one for each request of a half-broken store.
const WELL_AFTER_MS: u64 = 1_000;

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("is_failing", &self.is_failing)
            .field("is_miswired", &self.is_miswired)
            .finish_non_exhaustive()
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            is_failing: AtomicBool::new(false),
            last_failure_ms: AtomicU64::new(0),
            is_miswired: AtomicBool::new(false),
        }
    }
}

impl Health {
    pub(super) fn failed(&self, error: &StoreError, allows: bool) {
        self.last_failure_ms.store(self.now_ms(), Ordering::Relaxed);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            telemetry::store_failed(error, allows);
        }
    }

    pub(super) fn answered(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            return;
        }
        let last_failure_ms = self.last_failure_ms.load(Ordering::Relaxed);
        if self.now_ms().saturating_sub(last_failure_ms) >= WELL_AFTER_MS
            && self.is_failing.swap(false, Ordering::Relaxed)
        {
            telemetry::store_recovered();
        }
    }

    pub(super) fn miswired(&self, advice: &str) {
        if !self.is_miswired.swap(true, Ordering::Relaxed) {
            telemetry::miswired(advice);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
