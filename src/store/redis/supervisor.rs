//! Keeps a connection: makes it, waits for its end, makes another.

use std::{
    error::Error,
    future::pending,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    connect::Settings,
    connection::{CONNECT_TIMEOUT, Connection},
};
use crate::{
    StoreError,
    util::{lock::lock, random::random},
};

/// Calls wait this long for a lost connection to be made again, which is enough in a local
/// network. After that, they fail at once.
const GRACE: Duration = Duration::from_millis(10);
/// Between two attempts, even if the server replies on each connection before it is lost.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// A connection that lasts this long ends an outage.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Each step of an attempt to connect takes at most four timeouts of a check, as far as this, or
/// [`CONNECT_TIMEOUT`] if that is longer.
const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// More reasons than an outage has; a bound for a server that invents many.
const MAX_REASONS: usize = 8;

/// What a pool knows of a connection. `None`: an attempt is under way that may succeed in a moment,
/// and calls wait for it. With an error, calls fail at once.
pub(super) type ConnectState = Option<Result<Arc<Connection>, StoreError>>;

/// Returns the error of a call before the first attempt to connect has ended.
pub(super) fn not_yet() -> StoreError {
    StoreError::not_sent("there is no connection yet")
}

/// What the connections to one server share.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) settings: Settings,
    /// How many calls may wait on a connection.
    pub(super) queue: usize,
    /// Tells operators why there is no connection.
    pub(super) report: fn(StoreError),
    /// How long calls wait for the first connection.
    pub(super) first_grace: Duration,
    /// The reasons for failed attempts that were reported in this outage.
    pub(super) reported: Mutex<Vec<String>>,
}

impl Supervisor {
    /// Keeps one connection, and publishes its state.
    ///
    /// If a connection is lost on which the server had replied, the first attempt follows at
    /// once: the server is probably well. A peer that never replies is tried ever less often.
    pub(super) async fn run(self: Arc<Self>, publish: Arc<watch::Sender<ConnectState>>) {
        // Since a connection had a reply; and in all, for the turn of the sentinels.
        let mut failures = 0_u32;
        let mut failed = 0;
        let mut lost: Option<StoreError> = None;
        let longest = self.first_grace.saturating_mul(4);
        let longest = longest.clamp(CONNECT_TIMEOUT, LONGEST_CONNECT_TIMEOUT);
        publish.send_replace(None);
        loop {
            let started = Instant::now();
            let mut attempt = pin!(self.settings.open(self.queue, failed, longest));
            let (grace, unless) = match &lost {
                None => (self.first_grace, not_yet()),
                Some(error) => (GRACE, error.clone()),
            };
            let attempt = match timeout(grace, attempt.as_mut()).await {
                Ok(ended) => ended,
                Err(_) => {
                    publish.send_replace(Some(Err(unless)));
                    attempt.await
                }
            };
            let mut is_answered = false;
            let error = match attempt {
                Ok(mut opened) => {
                    publish.send_replace(Some(Ok(Arc::clone(&opened.connection))));
                    // Beside the wait for the end, whose probes would begin anew if it were made again.
                    let stable = async {
                        sleep(STABLE_AFTER).await;
                        lock(&self.reported).clear();
                        pending().await
                    };
                    let error = select! { lost = opened.ended() => lost, never = stable => never };
                    is_answered = opened.connection.has_replied();
                    // Published before the client ends, so that no call finds it ended.
                    publish.send_replace((!is_answered).then(|| Err(error.clone())));
                    error
                }
                Err(error) => {
                    failed = failed.wrapping_add(1);
                    let error = error.at(&self.settings.name());
                    self.report(&error);
                    publish.send_replace(Some(Err(error.clone())));
                    error
                }
            };
            lost = Some(error);
            if is_answered {
                failures = 0;
                sleep(MIN_INTERVAL.saturating_sub(started.elapsed())).await;
            } else {
                sleep(pause_after(failures)).await;
                failures = failures.saturating_add(1);
            }
        }
    }

    /// Reports each reason once in an outage.
    fn report(&self, error: &StoreError) {
        let reason = error.source().map(ToString::to_string).unwrap_or_default();
        let mut reported = lock(&self.reported);
        if reported.len() < MAX_REASONS && !reported.contains(&reason) {
            reported.push(reason);
            drop(reported);
            (self.report)(error.clone());
        }
    }
}

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the pause after so many failed attempts before the last one: each is twice as long as the
/// one before, up to a second, and up to a half more or less at random, even once it has stopped
/// growing.
pub(super) fn pause_after(failures: u32) -> Duration {
    jittered(LONGEST.min(SHORTEST * (1 << failures.min(5))))
}

/// Returns `pause`, up to a half more or less.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause * (512 + (random() % 1_024) as u32) / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_stay_random_there() {
        for (failures, expected_ms) in (0..).zip([50, 100, 200, 400, 800, 1_000, 1_000]) {
            let expected = Duration::from_millis(expected_ms);
            let pause = pause_after(failures);
            assert!(pause >= expected / 2, "{pause:?} of {expected:?}");
            assert!(pause < expected * 3 / 2, "{pause:?} of {expected:?}");
        }
        let at_the_bound: Vec<_> = (0..1_000).map(|_| pause_after(u32::MAX)).collect();
        for tenth in 5..15 {
            let from = LONGEST * tenth / 10;
            let range = from..from + LONGEST / 10;
            let pauses = at_the_bound.iter().filter(|pause| range.contains(*pause));
            let count = pauses.count();
            assert!((50..200).contains(&count), "{count} of 1,000 in {range:?}");
        }
    }
}
