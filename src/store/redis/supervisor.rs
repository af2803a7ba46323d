//! Keeps a connection: makes it, waits for its end, makes another.

use std::{
    error::Error,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    backoff::Backoff,
    connect::Settings,
    connection::Connection,
    deadline::{CONNECT_TIMEOUT, LONGEST_CONNECT_TIMEOUT},
};
use crate::{StoreError, util::lock::lock};

/// Calls wait this long for a lost connection to be made again, which is enough in a local
/// network. After that, they fail at once.
const GRACE: Duration = Duration::from_millis(10);
/// Between two attempts, even if the server replies on each connection before it is lost.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// A connection that lasts this long ends an outage.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// More reasons than an outage has; a bound for a server that invents many.
const MAX_REASONS: usize = 8;

/// What a pool knows of a connection.
#[derive(Clone, Debug)]
pub(super) enum ConnectState {
    /// An attempt is under way that may succeed in a moment: calls wait for it.
    Connecting,
    Connected(Arc<Connection>),
    /// Calls fail at once, for this reason.
    Disconnected(StoreError),
}

/// Returns the error of a call before the first attempt to connect has ended.
pub(super) fn not_yet() -> StoreError {
    StoreError::not_sent("there is no connection yet")
}

/// Reports to operators why the server is not connected.
pub(super) type Report = fn(StoreError);

/// What the connections to one server share.
#[derive(Debug)]
pub(super) struct Supervisor {
    settings: Settings,
    queue: usize,
    server: Arc<str>,
    report: Report,
    first_grace: Duration,
    outage: Mutex<Outage>,
}

/// The reasons for failed attempts that have been reported.
#[derive(Debug, Default)]
struct Outage {
    reported: Vec<String>,
    connected_at: Option<Instant>,
}

impl Supervisor {
    /// `first_grace`: how long calls wait for the first connection.
    pub(super) fn new(
        settings: Settings,
        queue: usize,
        server: Arc<str>,
        report: Report,
        first_grace: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            queue,
            server,
            report,
            first_grace,
            outage: Mutex::default(),
        })
    }

    /// Keeps one connection, and publishes its state.
    ///
    /// If a connection is lost on which the server had replied, the first attempt follows at
    /// once: the server is probably well. A peer that never replies is tried ever less often.
    pub(super) async fn run(self: Arc<Self>, publish: Arc<watch::Sender<ConnectState>>) {
        let mut backoff = Backoff::new();
        let mut failed = 0;
        let mut lost: Option<StoreError> = None;
        let longest = self.first_grace.saturating_mul(4);
        let longest = longest.clamp(CONNECT_TIMEOUT, LONGEST_CONNECT_TIMEOUT);
        publish.send_replace(ConnectState::Connecting);
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
                    publish.send_replace(ConnectState::Disconnected(unless));
                    attempt.await
                }
            };
            let mut is_answered = false;
            let error = match attempt {
                Ok(mut opened) => {
                    self.outage().connected_at = Some(Instant::now());
                    publish.send_replace(ConnectState::Connected(Arc::clone(&opened.connection)));
                    let error = opened.ended().await;
                    is_answered = opened.connection.has_replied();
                    // Published before the client ends, so that no call finds it ended.
                    publish.send_replace(match is_answered {
                        true => ConnectState::Connecting,
                        false => ConnectState::Disconnected(error.clone()),
                    });
                    error
                }
                Err(error) => {
                    failed = failed.wrapping_add(1);
                    let error = error.at(&self.server);
                    self.report(&error);
                    publish.send_replace(ConnectState::Disconnected(error.clone()));
                    error
                }
            };
            lost = Some(error);
            if is_answered {
                backoff.reset();
                sleep(MIN_INTERVAL.saturating_sub(started.elapsed())).await;
            } else {
                sleep(backoff.next()).await;
            }
        }
    }

    /// Reports each reason once in an outage.
    fn report(&self, error: &StoreError) {
        let reason = error.source().map(ToString::to_string).unwrap_or_default();
        let mut outage = self.outage();
        let was_stable = outage
            .connected_at
            .take_if(|at| at.elapsed() >= STABLE_AFTER);
        if was_stable.is_some() {
            outage.reported.clear();
        }
        if outage.reported.len() < MAX_REASONS && !outage.reported.contains(&reason) {
            outage.reported.push(reason);
            drop(outage);
            (self.report)(error.clone());
        }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Outage> {
        lock(&self.outage)
    }
}
