//! A client of the application's own, which the application connects.

use std::sync::Arc;

use fred::{
    clients::Client,
    interfaces::{ClientLike, EventInterface},
};
use tokio::{runtime::Handle, select, sync::watch, time::sleep};

use super::{
    client_reply::store_error,
    connect::{TICK, named},
    connection::Connection,
    pool::{Pool, Wire},
    supervisor::ConnectState,
};
use crate::{
    ConfigError, RedisStore, RedisStoreBuilder, store::process::ProcessContext,
    util::task::AbortOnDrop,
};

impl RedisStoreBuilder {
    /// Uses a fred client of your own, for one node: for a Unix socket, or another implementation of
    /// TLS. You connect it and keep it connected. The settings for TLS and credentials are not for it.
    ///
    /// Give it a [`ReconnectPolicy`](fred::types::config::ReconnectPolicy)
    /// that never gives up; without one, the first lost connection is the last. Each check is
    /// one attempt with this store's timeout, whatever the client's own settings. A check
    /// that is sent while the connection is being lost may wait for its whole timeout. Later
    /// checks fail at once. Clients for a cluster or behind Sentinel are not supported here.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be used, or if there is no Tokio runtime.
    pub fn client(self, client: Client) -> Result<RedisStore, ConfigError> {
        self.with_pool(ProcessContext::new, |runtime| pool_of(runtime, client))
    }
}

fn pool_of(runtime: &Handle, client: Client) -> Pool {
    let server = named(&client.client_config().server);
    let connection = Arc::new(Connection::new(client));
    let (publish, state) = watch::channel(Some(Ok(Arc::clone(&connection))));
    let publish = Arc::new(publish);
    let work = move || follow(Arc::clone(&connection), Arc::clone(&publish));
    let follower = AbortOnDrop::keep(runtime, work);
    let _supervisor = Some(follower);
    Pool::new(server, vec![Wire { state, _supervisor }])
}

/// Publishes the state of a client that its owner keeps.
async fn follow(connection: Arc<Connection>, publish: Arc<watch::Sender<ConnectState>>) {
    let client = &connection.client;
    let is_connected = || matches!(&*publish.borrow(), Some(Ok(_)));
    let connected = || {
        if !is_connected() {
            publish.send_replace(Some(Ok(Arc::clone(&connection))));
        }
    };
    loop {
        let (mut errors, mut connects) = (client.error_rx(), client.reconnect_rx());
        loop {
            select! {
                // Errors come first: a connection that follows an error counts.
                biased;
                reported = errors.recv() => {
                    // Its owner has ended it, and may connect it again.
                    let Ok((error, _)) = reported else { break };
                    publish.send_replace(Some(Err(store_error(error).not_connected())));
                }
                reported = connects.recv() => {
                    let Ok(_) = reported else { break };
                    connected();
                }
                // The error may not have ended the connection. fred's own state is not
                // enough: it stays "connected" while it sleeps before it connects again.
                () = sleep(TICK) => {
                    if !is_connected() && client.is_connected() && connection.probe().await {
                        connected();
                    }
                }
            }
        }
        sleep(TICK).await;
    }
}
