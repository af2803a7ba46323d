//! The script calls of a store on Redis.

use std::time::Duration;

use super::histogram::{CALL_SECONDS, CHECKS_PER_CALL, Recording};

/// Counts script calls: how long each took, and how many checks shared it.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) seconds: Recording,
    pub(crate) checks: Recording,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            seconds: Recording::of_seconds(CALL_SECONDS),
            checks: Recording::new(CHECKS_PER_CALL),
        }
    }

    pub(crate) fn record(&self, took: Duration, checks: u64) {
        self.seconds.record_duration(took);
        self.checks.record(checks);
    }
}
