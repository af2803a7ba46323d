//! Since when nothing comes back on a connection.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Told how each call ended. The client has such a watch, too, but sets a timer
/// for each command and each answer, and begins anew with each command.
#[derive(Debug)]
pub(super) struct Silence {
    started: Instant,
    /// The first call that was lost since the last answer, in milliseconds from
    /// the start. 0: there is none.
    since_ms: AtomicU64,
}

impl Silence {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            since_ms: AtomicU64::new(0),
        }
    }

    /// A call waited for its answer in vain.
    pub(super) fn lost(&self) {
        let (before, order) = (self.since_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        if before == 0 {
            // Another may have been the first.
            let _ = self
                .since_ms
                .compare_exchange(0, self.now_ms(), order, order);
        }
    }

    /// Something came back, or the connection is another.
    pub(super) fn broken(&self) {
        // Nearly always it is: what all read and nobody writes is cheap to read.
        if self.since_ms.load(Ordering::Relaxed) != 0 {
            self.since_ms.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_for(&self, time: Duration) -> bool {
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let silent_ms = self.now_ms().saturating_sub(since_ms);
        since_ms != 0 && u128::from(silent_ms) >= time.as_millis()
    }

    /// Never 0.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).map_or(u64::MAX, |ms| ms + 1)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn it_begins_with_the_first_call_that_is_lost_and_ends_with_an_answer() {
        let silence = Silence::new();
        advance(LONG).await;
        assert!(!silence.is_for(LONG), "nobody asked");
        silence.lost();
        advance(LONG / 2).await;
        silence.lost();
        assert!(!silence.is_for(LONG));
        advance(LONG / 2).await;
        assert!(silence.is_for(LONG));
        silence.broken();
        assert!(!silence.is_for(Duration::ZERO));
        silence.lost();
        assert!(silence.is_for(Duration::ZERO));
        assert!(!silence.is_for(LONG), "it began anew");
    }
}
