//! Remembers what was logged about the store's failures, so that each change is logged once.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::{
    Decision, Source, StoreError,
    metrics::{counts::Tally, store::StoreFailures},
    telemetry,
    util::lock::lock,
};

/// The health of the store, as it was logged.
#[derive(Default)]
pub(super) struct Health {
    /// A bit for each kind of failure that was logged; 0 while the store is healthy.
    logged_kinds: AtomicU8,
    last_failure: Mutex<Option<Instant>>,
    /// When a line last told of checks that were refused although the store did not fail.
    overload_logged: Mutex<Option<Instant>>,
    /// Counts replies from a failure on until the store counts as recovered.
    replies: watch::Sender<u64>,
    failures: Tally<9>,
}

/// The bit of any failure, in addition to those of the kinds.
const FAILING: u8 = 128;

/// The shortest time between two lines about overload.
const OVERLOAD_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The store must answer for this long before it counts as recovered. Otherwise a store that
/// fails now and then would log a line for each request.
const WELL_AFTER: Duration = Duration::from_secs(5);

impl Health {
    /// Counts a failure, and logs a change of the store's health.
    pub(super) fn record(&self, answer: &Result<Decision, StoreError>) {
        if let Err(error) = answer {
            if let Some(place) = StoreFailures::place_of(error.kind_name()) {
                self.failures.add(place);
            }
        }
        match answer {
            Ok(decision) => self.answered(decision),
            Err(error) if error.is_unsupported() => {}
            Err(error) if error.is_overloaded() || error.is_corrupt_state() => {
                self.log_overload(error);
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: &StoreError) {
        *lock(&self.last_failure) = Some(Instant::now());
        let kind_bit = error.sign();
        let logged_kinds = self
            .logged_kinds
            .fetch_or(FAILING | kind_bit, Ordering::Relaxed);
        // The known cause of an outage tells operators more than a missing reply.
        let is_vague = kind_bit == StoreError::SILENCE && logged_kinds & !FAILING != 0;
        if logged_kinds == 0 {
            telemetry::store_failed(error);
        } else if kind_bit & !logged_kinds != 0 && !is_vague {
            telemetry::store_fails_otherwise(error);
        }
    }

    /// Logs a refusal that is not a failure of the store, at most once per interval.
    fn log_overload(&self, error: &StoreError) {
        let mut logged = lock(&self.overload_logged);
        if logged.is_some_and(|last| last.elapsed() < OVERLOAD_LOG_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        drop(logged);
        telemetry::shed(error);
    }

    pub(super) fn answered(&self, decision: &Decision) {
        // A cached or leased decision does not show the store's present health.
        let is_of_store = decision.source() == Source::Store;
        if !is_of_store || self.logged_kinds.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.replies.send_modify(|count| *count += 1);
        let last_failure = *lock(&self.last_failure);
        if last_failure.is_none_or(|last| last.elapsed() >= WELL_AFTER)
            && self.logged_kinds.swap(0, Ordering::Relaxed) != 0
        {
            telemetry::store_recovered();
        }
    }

    /// Returns how often the store did not decide.
    pub(super) fn failures(&self) -> StoreFailures {
        StoreFailures::from_array(self.failures.load())
    }

    /// Returns whether the store decides, as it was logged.
    pub(super) fn is_up(&self) -> bool {
        self.logged_kinds.load(Ordering::Relaxed) == 0
    }

    /// Returns how many replies of a failing store have been counted.
    pub(super) fn replies(&self) -> u64 {
        *self.replies.borrow()
    }

    /// Waits until more than `before` replies have been counted.
    pub(super) async fn reply_after(&self, before: u64) {
        let mut replies = self.replies.subscribe();
        // The sender lives as long as this does.
        let _ = replies.wait_for(|count| *count > before).await;
    }
}
