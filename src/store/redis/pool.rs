//! The connections to one Redis server, taken in turn.

#[cfg(feature = "testing")]
use std::fmt;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    SendMode,
    client_reply::Reply,
    command::Command,
    connect::Settings,
    connection::{Connection, LoadedScripts},
    deadline::Deadline,
    reply::Integers,
    request::ScriptCall,
    shared::Shared,
    supervisor::{ConnectState, Report, Supervisor, not_yet},
};
#[cfg(feature = "testing")]
use crate::store::StoreFuture;
use crate::{ConfigError, StoreError, util::task::AbortOnDrop};

/// The connections to one server. There is at least one.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The name by which operators know the server.
    server: Arc<str>,
    wires: Vec<Wire>,
    next: AtomicUsize,
    scripts: LoadedScripts,
}

/// What carries a call to the server.
#[derive(Debug)]
pub(super) enum Wire {
    Redis(PooledConnection),
    #[cfg(feature = "testing")]
    Double(Box<dyn ServerDouble>),
}

/// A server in this process that stands in for Redis: for tests.
#[cfg(feature = "testing")]
pub(crate) trait ServerDouble: fmt::Debug + Send + Sync {
    /// Replies to the script for these checks.
    fn eval(&self, call: &ScriptCall<'_>, deadline: Deadline) -> StoreFuture<Integers>;

    fn send(&self, command: Command, deadline: Deadline) -> StoreFuture<Reply>;
}

/// A connection that is made again when it is lost.
#[derive(Debug)]
pub(super) struct PooledConnection {
    state: watch::Receiver<ConnectState>,
    _supervisor: AbortOnDrop<()>,
}

impl Pool {
    /// Starts connecting and returns at once. `first_grace`: how long calls wait for the first
    /// connection.
    pub(super) fn connect(
        shared: &Shared,
        settings: Settings,
        report: Report,
        first_grace: Duration,
    ) -> Result<Self, ConfigError> {
        let queue = shared.max_in_flight;
        settings.check(queue)?;
        let server = settings.name();
        let name = Arc::clone(&server);
        let supervisor = Supervisor::new(settings, queue, name, report, first_grace);
        let wire = || {
            let (publish, state) = watch::channel(ConnectState::Connecting);
            let (supervisor, publish) = (Arc::clone(&supervisor), Arc::new(publish));
            let work = move || Arc::clone(&supervisor).run(Arc::clone(&publish));
            Wire::Redis(PooledConnection::new(
                state,
                AbortOnDrop::keep(&shared.runtime, work),
            ))
        };
        Ok(Self::new(
            server,
            (0..shared.connections).map(|_| wire()).collect(),
        ))
    }

    pub(super) fn new(server: Arc<str>, wires: Vec<Wire>) -> Self {
        Self {
            server,
            wires,
            next: AtomicUsize::new(0),
            scripts: LoadedScripts::default(),
        }
    }

    /// Returns the pool of a server in this process.
    #[cfg(feature = "testing")]
    pub(crate) fn of_double(server: Arc<str>, double: Box<dyn ServerDouble>) -> Self {
        Self::new(server, vec![Wire::Double(double)])
    }

    pub(super) const fn server(&self) -> &Arc<str> {
        &self.server
    }

    pub(super) const fn scripts(&self) -> &LoadedScripts {
        &self.scripts
    }

    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Returns the next connection in turn that does not stall, if there is one.
    #[expect(clippy::expect_used, reason = "there is at least one connection")]
    pub(super) fn next(&self) -> &Wire {
        let count = self.wires.len();
        let turn = match count {
            1 => 0,
            count => self.next.fetch_add(1, Ordering::Relaxed) % count,
        };
        let mut turns = self.wires.iter().cycle().skip(turn).take(count);
        let in_turn = turns.next().expect("a pool has a connection for each turn");
        if count == 1 || !in_turn.is_stalled() {
            return in_turn;
        }
        turns.find(|wire| !wire.is_stalled()).unwrap_or(in_turn)
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
    /// Runs the script for these checks, and returns its reply.
    pub(super) async fn eval(
        &self,
        scripts: &LoadedScripts,
        call: &ScriptCall<'_>,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Integers, StoreError> {
        match self {
            Self::Redis(pooled) => {
                let connection = pooled.connection(deadline).await?;
                connection.eval(scripts, call, mode, deadline).await
            }
            #[cfg(feature = "testing")]
            Self::Double(server) => server.eval(call, deadline).await,
        }
    }

    pub(super) async fn send(
        &self,
        command: &Command,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Redis(pooled) => {
                let connection = pooled.connection(deadline).await?;
                connection.send(command, mode, deadline).await
            }
            #[cfg(feature = "testing")]
            Self::Double(server) => server.send(command.clone(), deadline).await,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::Redis(pooled) => {
                matches!(&*pooled.state.borrow(), ConnectState::Connected(_))
            }
            #[cfg(feature = "testing")]
            Self::Double(_) => true,
        }
    }

    fn is_stalled(&self) -> bool {
        match self {
            Self::Redis(pooled) => match &*pooled.state.borrow() {
                ConnectState::Connected(connection) => connection.is_stalled(),
                _ => false,
            },
            #[cfg(feature = "testing")]
            Self::Double(_) => false,
        }
    }

    /// Replaces the connection, unless that is under way already. Leaves a client that was handed
    /// in to its owner, which may have other work under way on it.
    pub(super) fn replace(&self) {
        match self {
            Self::Redis(pooled) => {
                if let ConnectState::Connected(connection) = &*pooled.state.borrow() {
                    connection.request_replacement();
                }
            }
            #[cfg(feature = "testing")]
            Self::Double(_) => {}
        }
    }
}

impl PooledConnection {
    pub(super) const fn new(
        state: watch::Receiver<ConnectState>,
        supervisor: AbortOnDrop<()>,
    ) -> Self {
        Self {
            state,
            _supervisor: supervisor,
        }
    }

    /// Returns the connection. Waits while an attempt to connect may succeed in a moment.
    async fn connection(&self, deadline: Deadline) -> Result<Arc<Connection>, StoreError> {
        let settled = |state: &ConnectState| match state {
            ConnectState::Connecting => None,
            ConnectState::Connected(connection) => Some(Ok(Arc::clone(connection))),
            ConnectState::Disconnected(error) => Some(Err(error.clone())),
        };
        let now = settled(&self.state.borrow());
        if let Some(settled) = now {
            return settled;
        }
        let mut state = self.state.clone();
        let is_settled = |state: &ConnectState| settled(state).is_some();
        let waiting = tokio::time::timeout(deadline.remaining(), state.wait_for(is_settled));
        match Box::pin(waiting).await {
            Ok(Ok(state)) => settled(&state).unwrap_or_else(|| Err(not_yet())),
            // The time is over, or the supervisor is gone.
            Ok(Err(_)) | Err(_) => Err(not_yet()),
        }
    }
}
