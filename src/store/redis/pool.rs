//! The connections to one Redis server, taken in turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout_at},
};

#[cfg(feature = "testing")]
use super::connection::ServerDouble;
use super::{
    connect::Settings,
    connection::Connection,
    script,
    shared::Shared,
    supervisor::{ConnectState, Supervisor, not_yet},
};
use crate::{StoreError, util::task::AbortOnDrop};

/// The connections to one server. There is at least one.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The name by which operators know the server.
    pub(super) server: Arc<str>,
    wires: Vec<Wire>,
    next: AtomicUsize,
    /// When the text of a script was sent last. Locked by the call that sends one.
    pub(super) loaded_at: Mutex<Option<Instant>>,
}

/// A connection that is made again when it is lost.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) state: watch::Receiver<ConnectState>,
    /// Keeps the connection, unless it is a server in this process.
    pub(super) _supervisor: Option<AbortOnDrop>,
}

impl Pool {
    /// Starts connecting and returns at once. `report`: gets the reasons why there is no connection.
    /// `first_grace`: how long calls wait for the first connection.
    pub(super) fn connect(
        shared: &Shared,
        settings: Settings,
        report: fn(StoreError),
        first_grace: Duration,
    ) -> Self {
        let server = settings.name();
        let supervisor = Arc::new(Supervisor {
            settings,
            // Each script may be on its way to be loaded.
            queue: shared.max_in_flight.saturating_add(script::COUNT),
            report,
            first_grace,
            reported: Default::default(),
        });
        let wire = |_| {
            let (publish, state) = watch::channel(None);
            let (supervisor, publish) = (Arc::clone(&supervisor), Arc::new(publish));
            let work = move || Arc::clone(&supervisor).run(Arc::clone(&publish));
            Wire {
                state,
                _supervisor: Some(AbortOnDrop::keep(&shared.runtime, work)),
            }
        };
        Self::new(server, (0..shared.connections).map(wire).collect())
    }

    pub(super) fn new(server: Arc<str>, wires: Vec<Wire>) -> Self {
        Self {
            server,
            wires,
            next: AtomicUsize::new(0),
            loaded_at: Mutex::default(),
        }
    }

    /// Returns the pool of a server in this process.
    #[cfg(feature = "testing")]
    pub(crate) fn of_double(double: Box<dyn ServerDouble>) -> Self {
        let connection = Arc::new(Connection::of_double(double));
        let (_, state) = watch::channel(Some(Ok(connection)));
        let _supervisor = None;
        Self::new("simulated Redis".into(), vec![Wire { state, _supervisor }])
    }

    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Returns the next connection in turn that does not stall, if there is one.
    #[expect(clippy::expect_used, reason = "there is at least one connection")]
    pub(super) fn next(&self) -> &Wire {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.wires.len();
        let mut turns = self.wires.iter().cycle().skip(turn).take(self.wires.len());
        let flowing = turns.clone().find(|wire| !wire.is_stalled());
        flowing.or_else(|| turns.next()).expect("a connection")
    }

    pub(super) fn is_connected(&self) -> bool {
        self.wires.iter().any(Wire::is_connected)
    }

    /// Replaces all connections.
    pub(super) fn replace_all(&self) {
        self.wires.iter().for_each(Wire::replace);
    }
}

impl Wire {
    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), Some(Ok(_)))
    }

    fn is_stalled(&self) -> bool {
        matches!(&*self.state.borrow(), Some(Ok(connection)) if connection.is_stalled())
    }

    /// Replaces the connection, unless that is under way already. Leaves a client that was handed
    /// in to its owner, which may have other work under way on it.
    pub(super) fn replace(&self) {
        if let Some(Ok(connection)) = &*self.state.borrow() {
            connection.request_replacement();
        }
    }

    /// Returns the connection. Waits while an attempt to connect may succeed in a moment.
    pub(super) async fn connection(
        &self,
        deadline: Instant,
    ) -> Result<Arc<Connection>, StoreError> {
        let now = self.state.borrow().clone();
        if let Some(settled) = now {
            return settled;
        }
        let mut state = self.state.clone();
        let waiting = timeout_at(deadline, state.wait_for(Option::is_some));
        match Box::pin(waiting).await {
            Ok(Ok(state)) => state.clone().unwrap_or_else(|| Err(not_yet())),
            // The time is over, or the supervisor is gone.
            Ok(Err(_)) | Err(_) => Err(not_yet()),
        }
    }
}
