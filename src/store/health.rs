//! What was logged of the store's failures, so that each change is said once.

use std::{
    fmt,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    time::Instant,
};

use crate::{Decision, Source, StoreError, telemetry};

/// How the store does, as far as it was logged.
pub(super) struct Health {
    started: Instant,
    /// The signs of failure that were logged; none while it is well.
    told: AtomicU8,
    last_failure_ms: AtomicU64,
    /// When refusals that are not the store's failure were last logged, plus 1; 0 for never.
    shed_ms: AtomicU64,
}

/// Beside the signs of errors.
const FAILING: u8 = 128;

/// Such refusals are logged no more often than this.
const SHED_EVERY_MS: u64 = 10_000;

/// The store must answer for so long before it counts as well again: one line
/// for each change of state, and not one for each request of a half-broken store.
const WELL_AFTER_MS: u64 = 5_000;

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            told: AtomicU8::new(0),
            last_failure_ms: AtomicU64::new(0),
            shed_ms: AtomicU64::new(0),
        }
    }
}

impl Health {
    /// Logs what an answer tells of the store, if that is a change.
    pub(super) fn record(&self, answer: &Result<Decision, StoreError>) {
        match answer {
            Ok(decision) => self.answered(decision),
            Err(error) if error.is_unsupported() => {}
            Err(error) if error.is_overloaded() || error.is_corrupt_state() => self.shed(error),
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: &StoreError) {
        self.last_failure_ms.store(self.now_ms(), Ordering::Relaxed);
        let sign = error.sign();
        let told = self.told.fetch_or(FAILING | sign, Ordering::Relaxed);
        // What is known of an outage says more than that a check got no answer.
        let is_vague = sign == StoreError::SILENCE && told & !FAILING != 0;
        if told == 0 {
            telemetry::store_failed(error);
        } else if sign & !told != 0 && !is_vague {
            telemetry::store_fails_otherwise(error);
        }
    }

    /// Refused for a reason that is not the store's failure.
    fn shed(&self, error: &StoreError) {
        let (now_ms, last_ms) = (self.now_ms() + 1, self.shed_ms.load(Ordering::Relaxed));
        let is_time = last_ms == 0 || now_ms.saturating_sub(last_ms) >= SHED_EVERY_MS;
        let order = Ordering::Relaxed;
        if is_time
            && self
                .shed_ms
                .compare_exchange(last_ms, now_ms, order, order)
                .is_ok()
        {
            telemetry::shed(error);
        }
    }

    #[inline]
    pub(super) fn answered(&self, decision: &Decision) {
        // What the store said once says nothing of how it does now.
        let is_of_store = decision.source() == Source::Store;
        if !is_of_store || self.told.load(Ordering::Relaxed) == 0 {
            return;
        }
        let last_failure_ms = self.last_failure_ms.load(Ordering::Relaxed);
        if self.now_ms().saturating_sub(last_failure_ms) >= WELL_AFTER_MS
            && self.told.swap(0, Ordering::Relaxed) != 0
        {
            telemetry::store_recovered();
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
