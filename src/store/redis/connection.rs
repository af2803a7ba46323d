//! Connections to one Redis server, taken in turn.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
};

use super::{
    pool::Settings,
    server::Connection,
    supervisor::{Report, Supervisor},
    task::AbortOnDrop,
};
use crate::{ConfigError, StoreError};

/// Connections to one server.
#[derive(Debug)]
pub(super) struct Connections {
    /// What an operator knows the server by.
    server: Arc<str>,
    links: Vec<Link>,
    turn: AtomicUsize,
    /// Held by whom loads a script.
    pub(super) loading: Mutex<()>,
    /// Scripts that were loaded.
    pub(super) loads: AtomicUsize,
}

/// One of them, whether it stands or not.
#[derive(Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    _supervisor: AbortOnDrop<()>,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// An attempt is under way that may succeed in a moment: calls wait for it.
    Connecting,
    Connected(Arc<Connection>),
    /// Calls fail at once, for this reason.
    Disconnected(StoreError),
}

impl Connections {
    /// Starts connecting and returns at once.
    pub(super) fn connect(
        runtime: &Handle,
        settings: Settings,
        count: usize,
        queue: usize,
        report: Report,
    ) -> Result<Self, ConfigError> {
        let server = settings.name();
        settings.check(queue)?;
        let supervisor = Supervisor::new(settings, queue, Arc::clone(&server), report);
        let links = (0..count).map(|_| Link::supervised(runtime, &supervisor));
        Ok(Self::of(server, links.collect()))
    }

    /// One connection that its owner looks after.
    #[cfg(feature = "fred")]
    pub(super) fn followed(
        server: Arc<str>,
        state: watch::Receiver<State>,
        follower: AbortOnDrop<()>,
    ) -> Self {
        let link = Link {
            state,
            _supervisor: follower,
        };
        Self::of(server, vec![link])
    }

    fn of(server: Arc<str>, links: Vec<Link>) -> Self {
        Self {
            server,
            links,
            turn: AtomicUsize::new(0),
            loading: Mutex::default(),
            loads: AtomicUsize::new(0),
        }
    }

    pub(super) const fn server(&self) -> &Arc<str> {
        &self.server
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Replaces all connections.
    pub(super) fn renew(&self) {
        self.links.iter().for_each(Link::renew);
    }

    /// The next in turn.
    pub(super) fn next(&self) -> Option<&Link> {
        if let [link] = &self.links[..] {
            return Some(link);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.links.get(turn.checked_rem(self.links.len())?)
    }
}

impl Link {
    fn supervised(runtime: &Handle, supervisor: &Arc<Supervisor>) -> Self {
        let (publish, state) = watch::channel(State::Connecting);
        let (supervisor, publish) = (Arc::clone(supervisor), Arc::new(publish));
        let work = move || Arc::clone(&supervisor).run(Arc::clone(&publish));
        Self {
            state,
            _supervisor: AbortOnDrop::keep(runtime, work),
        }
    }

    /// Replaces the connection, unless that is under way. A client that was handed in is
    /// its owner's: it may have other work under way.
    pub(super) fn renew(&self) {
        if let State::Connected(connection) = &*self.state.borrow() {
            connection.renew();
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Connected(_))
    }

    /// Returns the connection, or why there is none. `None` while it may come in a moment.
    pub(super) fn connection(&self) -> Option<Result<Arc<Connection>, StoreError>> {
        match &*self.state.borrow() {
            State::Connecting => None,
            State::Connected(connection) => Some(Ok(Arc::clone(connection))),
            State::Disconnected(error) => Some(Err(error.clone())),
        }
    }

    /// Waits until an attempt to connect has ended, or is given no more time.
    pub(super) async fn settled(&self) {
        let mut state = self.state.clone();
        let is_settled = |state: &State| !matches!(state, State::Connecting);
        // An error says that the supervisor is gone: nothing to wait for.
        let _ = state.wait_for(is_settled).await;
    }
}
