//! Connecting to a Redis server: the settings, the attempt, the end of the connection.
//!
//! This file, `connection.rs`, `client_reply.rs` and `handed_in.rs` are the only ones that use the
//! client fred.

use std::{fmt, sync::Arc, time::Duration};

use fred::{
    clients::Client,
    error::Error as FredError,
    interfaces::{ClientLike, EventInterface},
    socket2::TcpKeepalive,
    types::config::{Config, ConnectionConfig, ReconnectPolicy, Server, ServerConfig, TcpConfig},
};
use tokio::{
    select,
    sync::broadcast::Receiver,
    task::{AbortHandle, JoinHandle, yield_now},
    time::sleep,
};

use super::{
    address::Address,
    client_reply::{lost, store_error},
    connection::Connection,
};
use crate::{ConfigError, StoreError};

/// The interval at which a connection checks whether it was used.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// After this many ticks without a reply, the server is asked for the time. That finds a
/// dead flow before a check does, and keeps a NAT from dropping the flow.
const PROBE_TICKS: u32 = 5;
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Where to connect, and the credentials.
#[derive(Clone)]
pub(crate) struct Settings(pub(crate) Config);

impl fmt::Debug for Settings {
    /// Never the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.name())
    }
}

/// A connection that was made, and how its end is noticed.
pub(super) struct Opened {
    pub(super) connection: Arc<Connection>,
    /// Ends with fred's task of the connection, which is aborted when this is dropped.
    ended: JoinHandle<Option<FredError>>,
    abort: AbortHandle,
    errors: Receiver<(FredError, Option<Server>)>,
}

impl Settings {
    /// Returns the settings for one server: `user:password@host:port/database`.
    pub(super) fn of_server(address: &str) -> Result<Self, ConfigError> {
        // TLS is set up below, with a named provider: fred panics if the application enables
        // two providers.
        let config = Config::from_url_centralized(&format!("redis://{address}"));
        let mut config = config.map_err(|error| mistake(&error))?;
        // A connection begins in database 0, and not every user has the right to `SELECT` it.
        config.database = config.database.filter(|database| *database != 0);
        Ok(Self(config))
    }

    /// Returns the settings for the primary that sentinels name. `watch`: the credentials for
    /// the sentinels.
    pub(super) fn of_sentinels(
        hosts: &[&str],
        service_name: &str,
        watch: Self,
        mut primary: Self,
    ) -> Result<Self, ConfigError> {
        let mut servers = Vec::new();
        for host in hosts {
            let url = format!("redis-sentinel://{host}/?sentinelServiceName=any");
            let config = Config::from_url_sentinel(&url).map_err(|error| mistake(&error))?;
            servers.extend(config.server.hosts());
        }
        primary.0.server = ServerConfig::Sentinel {
            hosts: servers,
            service_name: service_name.to_owned(),
            username: watch.0.username,
            password: watch.0.password,
        };
        Ok(primary)
    }

    /// Returns the same settings for another server.
    pub(super) fn at(&self, address: &Address) -> Self {
        let mut config = self.0.clone();
        let (host, port) = (&address.host, address.port);
        let server = match host.contains(':') {
            true => Server::new(format!("[{host}]"), port),
            false => Server::new(host, port),
        };
        config.server = ServerConfig::Centralized { server };
        Self(config)
    }

    /// Returns the address, unless sentinels name the server.
    pub(super) fn address(&self) -> Option<Address> {
        match &self.0.server {
            ServerConfig::Centralized { server } => Some(Address::new(&server.host, server.port)),
            _ => None,
        }
    }

    /// Returns the name by which operators know the server.
    pub(super) fn name(&self) -> Arc<str> {
        named(&self.0.server)
    }

    /// Connects once. `turn`: which sentinel to ask first. `timeout`: for each step.
    pub(super) async fn open(
        &self,
        queue: usize,
        turn: usize,
        timeout: Duration,
    ) -> Result<Opened, StoreError> {
        let client = self.client(queue, turn, timeout);
        let mut connects = client.reconnect_rx();
        let mut opened = Opened::spawn(client.clone());
        select! {
            biased;
            ended = &mut opened.ended => return Err(not_connected(ended.ok().flatten())),
            _ = connects.recv() => {}
        }
        // fred reports the connection shortly before it takes calls, without an await between.
        while !client.is_connected() && !opened.ended.is_finished() {
            yield_now().await;
        }
        Ok(opened)
    }

    /// Returns a client for one connection. fred reconnects on its own, but only after a pause in
    /// which it accepts calls and leaves them waiting, and it asks the same sentinel first each
    /// time. So its pause is set to never end, and the supervisor makes another client meanwhile.
    fn client(&self, queue: usize, turn: usize, timeout: Duration) -> Client {
        let mut config = self.0.clone();
        // Reports the outcome of the first attempt at once.
        config.fail_fast = true;
        if let ServerConfig::Sentinel { hosts, .. } = &mut config.server {
            let turn = turn.checked_rem(hosts.len());
            hosts.rotate_left(turn.unwrap_or(0));
        }
        let connection = ConnectionConfig {
            connection_timeout: timeout,
            internal_command_timeout: timeout,
            // Never sent again: it may have been charged.
            max_command_attempts: 1,
            max_command_buffer_len: queue,
            reconnect_on_auth_error: true,
            tcp: TcpConfig {
                nodelay: Some(true),
                keepalive: Some(TcpKeepalive::new().with_time(KEEPALIVE)),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let never = ReconnectPolicy::new_constant(0, u32::MAX);
        Client::new(config, None, Some(connection), Some(never))
    }
}

#[cfg(feature = "redis-rustls")]
impl Settings {
    pub(super) fn use_tls(&mut self) -> Result<(), ConfigError> {
        use fred::{
            rustls::{ClientConfig, RootCertStore, crypto::ring},
            rustls_native_certs::load_native_certs,
            types::config::TlsConnector,
        };

        let found = load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            return Err(unusable(format!(
                "no certificate authority was found for TLS: install those of the system \
                 (ca-certificates), or name a file of them in SSL_CERT_FILE ({})",
                errors.join("; ")
            )));
        }
        let client = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        self.0.tls = Some(TlsConnector::from(client).into());
        Ok(())
    }
}

#[cfg(not(feature = "redis-rustls"))]
impl Settings {
    pub(super) fn use_tls(&mut self) -> Result<(), ConfigError> {
        let why = "TLS needs the feature `redis-rustls`, or a client of your own (feature `redis-client`)";
        Err(unusable(why))
    }
}

/// The details never contain the URL, which may contain a password.
fn mistake(error: &FredError) -> ConfigError {
    unusable(format!(
        "{}; write redis://user:password@host:port/database, with # / ? @ % in a password \
         percent-encoded",
        error.details().trim_end_matches('.')
    ))
}

impl Opened {
    /// Starts to connect. fred logs errors that have no listener at DEBUG, and the reply to AUTH may
    /// contain the password. An abort does not stop a poll that is under way, so one listener
    /// outlives the task.
    fn spawn(client: Client) -> Self {
        let (errors, listener) = (client.error_rx(), client.error_rx());
        let task = client.connect();
        Self {
            connection: Arc::new(Connection::new(client)),
            abort: task.abort_handle(),
            ended: tokio::spawn(async move {
                let ended = task.await;
                drop(listener);
                ended.ok().and_then(Result::err)
            }),
            errors,
        }
    }

    /// Waits until the connection is lost or must be replaced; returns the cause.
    pub(super) async fn ended(&mut self) -> StoreError {
        let Self {
            connection,
            ended,
            errors,
            ..
        } = self;
        let probing = async {
            loop {
                sleep(TICK).await;
                if connection.tick() % PROBE_TICKS == 0 {
                    Box::pin(connection.probe()).await;
                }
            }
        };
        // fred reports that the connection is lost long before its task ends.
        select! {
            biased;
            reported = errors.recv() => not_connected(reported.ok().map(|(error, _)| error)),
            ended = ended => not_connected(ended.ok().flatten()),
            () = connection.replacement_requested() => {
                StoreError::not_sent("the connection was replaced").not_connected()
            }
            never = probing => never,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

fn not_connected(error: Option<FredError>) -> StoreError {
    store_error(error.unwrap_or_else(lost)).not_connected()
}

/// Returns the name of a server, without credentials.
pub(super) fn named(server: &ServerConfig) -> Arc<str> {
    let hosts: Vec<_> = server.hosts().iter().map(ToString::to_string).collect();
    let hosts = hosts.join(",");
    match server {
        ServerConfig::Sentinel { service_name, .. } => format!("{service_name} of {hosts}").into(),
        _ => hosts.into(),
    }
}

/// Returns the error for a URL that cannot be used.
pub(super) fn unusable(reason: impl fmt::Display) -> ConfigError {
    ConfigError::new("redis-url", format!("unusable Redis URL: {reason}"))
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_without_secrets() {
        let sentinels = ServerConfig::Sentinel {
            hosts: vec![("one", 26_379).into(), ("[::1]", 3).into()],
            service_name: "main".to_owned(),
            username: Some("watch".to_owned()),
            password: Some("secret".to_owned()),
        };
        assert_eq!(&*named(&sentinels), "main of one:26379,[::1]:3");
        let one = ServerConfig::new_centralized("one", 6_379);
        assert_eq!(&*named(&one), "one:6379");
    }
}
