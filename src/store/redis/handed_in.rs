//! A client that its owner connects and keeps connected.

use std::sync::Arc;

use fred::{
    clients::Client,
    interfaces::{ClientLike, EventInterface},
};
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    connection::{Connections, State},
    either::{Either, either},
    pool::{TICK, named},
    server::{Connection, store_error},
    task::AbortOnDrop,
};
use crate::{ConfigError, RedisStore, RedisStoreBuilder};

#[cfg_attr(docsrs, doc(cfg(feature = "fred")))]
impl RedisStore {
    /// Uses a fred client of your own, with the default settings: for TLS by
    /// other means, a Unix socket, or credentials that change. See
    /// [`RedisStoreBuilder::client`].
    ///
    /// # Errors
    ///
    /// There is no Tokio runtime.
    pub fn from_client(client: Client) -> Result<Self, ConfigError> {
        Self::builder().client(client)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "fred")))]
impl RedisStoreBuilder {
    /// Uses a fred client of your own, for one node. You connect it and keep it so.
    ///
    /// Give it a [`ReconnectPolicy`](fred::types::config::ReconnectPolicy)
    /// without an end: with none, the first lost connection is its last. Checks
    /// are sent with one attempt, at once or not at all, and with this store's
    /// deadline, whatever the client's own settings. A check that is sent in the moment
    /// in which the connection is lost may wait for its whole deadline; later ones fail at
    /// once. A client for a cluster or behind Sentinel is not supported here.
    ///
    /// # Errors
    ///
    /// A setting cannot be used, or there is no Tokio runtime.
    pub fn client(self, client: Client) -> Result<RedisStore, ConfigError> {
        self.on(|runtime| given(runtime, client))
    }
}

fn given(runtime: &Handle, client: Client) -> Connections {
    let server = named(&client.client_config().server);
    let connection = Connection::new(client);
    let (publish, state) = watch::channel(State::Connected(Arc::clone(&connection)));
    let publish = Arc::new(publish);
    let work = move || follow(Arc::clone(&connection), Arc::clone(&publish));
    Connections::followed(server, state, AbortOnDrop::keep(runtime, work))
}

/// Follows what a client does that its owner looks after.
async fn follow(connection: Arc<Connection>, publish: Arc<watch::Sender<State>>) {
    let client = connection.client();
    loop {
        let (mut errors, mut connects) = (client.error_rx(), client.reconnect_rx());
        loop {
            // Errors first: a connection that was made after one is what counts.
            match timeout(TICK, either(errors.recv(), connects.recv())).await {
                Ok(Either::First(Ok((error, _)))) => {
                    let error = store_error(error).not_connected();
                    publish.send_replace(State::Disconnected(error));
                }
                Ok(Either::Second(Ok(_))) => connected(&connection, &publish),
                // Its owner has ended it, and may connect it again.
                Ok(_) => break,
                // The error may have cost no connection. fred's own word is not enough:
                // it stays "connected" while it sleeps before it connects again.
                Err(_) if is_disconnected(&publish) && client.is_connected() => {
                    if connection.probe().await {
                        connected(&connection, &publish);
                    }
                }
                Err(_) => {}
            }
        }
        sleep(TICK).await;
    }
}

fn is_disconnected(publish: &watch::Sender<State>) -> bool {
    matches!(&*publish.borrow(), State::Disconnected(_))
}

fn connected(connection: &Arc<Connection>, publish: &watch::Sender<State>) {
    publish.send_if_modified(|state| {
        let is_news = !matches!(state, State::Connected(_));
        if is_news {
            *state = State::Connected(Arc::clone(connection));
        }
        is_news
    });
}
