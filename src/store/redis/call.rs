//! One call to Redis: until when, how it is sent, what a failure suggests.

use std::{error::Error, time::Duration};

use tokio::time::Instant;

use super::server::RedisError;
use crate::StoreError;

/// What remains of the time that a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        let now = Instant::now();
        // So far away that nobody sees it.
        let ages = Duration::from_secs(86_400 * 365);
        Self(now.checked_add(time).unwrap_or(now + ages))
    }

    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    pub(super) fn is_over(self, now: Self) -> bool {
        self.0 <= now.0
    }

    /// The same instant, so much later.
    pub(super) fn and(self, time: Duration) -> Self {
        Self(self.0.checked_add(time).unwrap_or(self.0))
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// By more than a tick of the timers.
    pub(super) fn is_before(self, other: Self) -> bool {
        self.0 + TICK < other.0
    }

    pub(super) fn earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn later(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// When the time began that ends with it.
    pub(super) fn began(self, timeout: Duration) -> Option<Instant> {
        self.0.checked_sub(timeout)
    }
}

const TICK: Duration = Duration::from_millis(1);

/// How a command is sent to a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// To the node that a slot is on its way to, whose keys it answers for
    /// only when asked so.
    Asking,
}

/// Which connections may be the trouble, so that others might do better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    None,
    /// The one that was used.
    ThisOne,
    All,
}

/// `pause`: for how long nobody is asked after this error.
pub(super) fn suspects(error: &StoreError, pause: Duration) -> Suspects {
    // Replies that are out of step stay so.
    if error.is_foreign_reply() {
        return Suspects::ThisOne;
    }
    let said = error.source().and_then(|source| source.downcast_ref());
    let word = said.and_then(RedisError::word);
    // After a failover the same address may be a replica's, or nobody's.
    let is_elsewhere = error.is_timeout() || matches!(word, Some("READONLY" | "MASTERDOWN"));
    if is_elsewhere && pause >= PATIENCE {
        Suspects::All
    } else {
        Suspects::None
    }
}

/// Shorter pauses are not long enough to be sure.
pub(super) const PATIENCE: Duration = Duration::from_millis(400);
