//! Callers that wait to be admitted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

use super::histogram::{MICROSECONDS, Recording, WAIT_SECONDS};

/// Counts the callers of one layer or limiter that wait, and how long they waited.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(super) seconds: Recording,
    pub(super) waiting: AtomicU64,
}

impl Waits {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            seconds: Recording::new(WAIT_SECONDS, MICROSECONDS),
            waiting: AtomicU64::new(0),
        })
    }

    /// Begins a wait, which ends when the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Wait {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Wait {
            waits: Arc::clone(self),
            since: Instant::now(),
        }
    }
}

/// A caller that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    waits: Arc<Waits>,
    since: Instant,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.seconds.record_duration(self.since.elapsed());
        self.waits.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
