//! Keeps a connection: makes it, waits for its end, makes another.

use std::{
    error::Error,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{backoff::Backoff, connection::State, pool::Settings};
use crate::StoreError;

/// For so long calls wait for a lost connection to be remade. In a local network
/// that is enough; where it is not, they fail at once after that.
const MOMENT: Duration = Duration::from_millis(10);
/// Between two attempts, also where each connection is answered before it is lost.
const SHORTEST_BETWEEN: Duration = Duration::from_millis(10);
/// A connection that stood for so long has ended an outage.
const WELL_AFTER: Duration = Duration::from_secs(5);
/// More reasons than an outage has; a bound for a server that thinks of many.
const MOST_REASONS: usize = 8;

/// Tells an operator why there is no connection.
pub(super) type Report = fn(StoreError);

/// What the connections to a server have in common.
#[derive(Debug)]
pub(super) struct Supervisor {
    settings: Settings,
    queue: usize,
    server: Arc<str>,
    report: Report,
    outage: Mutex<Outage>,
}

/// Why attempts have failed, as far as it was reported.
#[derive(Debug, Default)]
struct Outage {
    reported: Vec<String>,
    connected_at: Option<Instant>,
}

impl Supervisor {
    pub(super) fn new(
        settings: Settings,
        queue: usize,
        server: Arc<str>,
        report: Report,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            queue,
            server,
            report,
            outage: Mutex::default(),
        })
    }

    /// Keeps one connection, and publishes how it is.
    ///
    /// After one that was answered is lost, the first attempt goes at once: the server is
    /// probably well. A peer that never answers is asked ever less often.
    pub(super) async fn run(self: Arc<Self>, publish: Arc<watch::Sender<State>>) {
        let mut backoff = Backoff::new();
        let mut failed = 0;
        let mut lost: Option<StoreError> = None;
        publish.send_replace(State::Connecting);
        loop {
            let started = Instant::now();
            let mut attempt = pin!(self.settings.open(self.queue, failed));
            let in_a_moment = match &lost {
                // Nothing is known yet of the server: calls wait, each until its deadline.
                None => Ok(attempt.as_mut().await),
                Some(error) => {
                    let ended = timeout(MOMENT, attempt.as_mut()).await;
                    ended.map_err(|_| State::Disconnected(error.clone()))
                }
            };
            let attempt = match in_a_moment {
                Ok(ended) => ended,
                Err(state) => {
                    publish.send_replace(state);
                    attempt.await
                }
            };
            let mut is_answered = false;
            let error = match attempt {
                Ok(mut opened) => {
                    self.outage().connected_at = Some(Instant::now());
                    publish.send_replace(State::Connected(Arc::clone(&opened.connection)));
                    let error = opened.ended().await;
                    is_answered = opened.connection.was_answered();
                    // Before the client ends: no call is to find it so.
                    publish.send_replace(match is_answered {
                        true => State::Connecting,
                        false => State::Disconnected(error.clone()),
                    });
                    error
                }
                Err(error) => {
                    failed = failed.wrapping_add(1);
                    let error = error.at(&self.server);
                    self.report(&error);
                    publish.send_replace(State::Disconnected(error.clone()));
                    error
                }
            };
            lost = Some(error);
            if is_answered {
                backoff.reset();
                sleep(SHORTEST_BETWEEN.saturating_sub(started.elapsed())).await;
            } else {
                sleep(backoff.next()).await;
            }
        }
    }

    /// Reports each reason once in an outage.
    fn report(&self, error: &StoreError) {
        let reason = error.source().map(ToString::to_string).unwrap_or_default();
        let mut outage = self.outage();
        let was_well = outage.connected_at.take_if(|at| at.elapsed() >= WELL_AFTER);
        if was_well.is_some() {
            outage.reported.clear();
        }
        if outage.reported.len() < MOST_REASONS && !outage.reported.contains(&reason) {
            outage.reported.push(reason);
            drop(outage);
            (self.report)(error.clone());
        }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
