//! Connecting to a Redis server: the settings, the attempt, the end of the connection.
//!
//! This file, `connection.rs` and `client_reply.rs` are the only ones that use the client fred.

use std::{fmt, sync::Arc, time::Duration};

use fred::{
    clients::Client,
    error::Error as FredError,
    interfaces::{ClientLike, EventInterface},
    socket2::TcpKeepalive,
    types::{
        Builder,
        config::{Config, ReconnectPolicy, Server, ServerConfig},
    },
};
use tokio::{
    sync::broadcast::Receiver,
    task::{AbortHandle, JoinHandle, yield_now},
    time::timeout,
};

use super::{
    address::Address,
    client_reply::{lost, store_error},
    connection::Connection,
    deadline::CONNECT_TIMEOUT,
    either::{Either, either},
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
pub(crate) struct Settings(Config);

impl fmt::Debug for Settings {
    /// Never the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.name())
    }
}

/// A connection that was made, and how its end is noticed.
pub(super) struct Opened {
    pub(super) connection: Arc<Connection>,
    task: FredTask,
    errors: Errors,
}

/// fred's task of one connection, which is aborted when this is dropped.
struct FredTask {
    ended: JoinHandle<Result<(), FredError>>,
    abort: AbortHandle,
}

impl FredTask {
    /// Connects. fred logs errors that have no listener at DEBUG, and the reply to AUTH may
    /// contain the password. An abort does not stop a poll that is under way, so one listener
    /// outlives the task.
    fn spawn(client: &Client) -> Self {
        let listener = client.error_rx();
        let task = client.connect();
        let abort = task.abort_handle();
        let ended = tokio::spawn(async move {
            let ended = task.await;
            drop(listener);
            ended.unwrap_or_else(|_| Err(lost()))
        });
        Self { ended, abort }
    }
}

impl Drop for FredTask {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

type Errors = Receiver<(FredError, Option<Server>)>;

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
        let (host, port) = (address.host(), address.port());
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

    /// Reports settings that cannot be used.
    pub(super) fn check(&self, queue: usize) -> Result<(), ConfigError> {
        let client = self.client(queue, 0, CONNECT_TIMEOUT);
        client.map(drop).map_err(|error| mistake(&error))
    }

    /// Connects once. `turn`: which sentinel to ask first. `timeout`: for each step.
    pub(super) async fn open(
        &self,
        queue: usize,
        turn: usize,
        timeout: Duration,
    ) -> Result<Opened, StoreError> {
        let opened = match self.client(queue, turn, timeout) {
            Ok(client) => Box::pin(opened_by(client)).await,
            Err(error) => Err(error),
        };
        opened.map_err(|error| store_error(error).not_connected())
    }

    /// Returns a client for one connection. fred reconnects on its own, but only after a pause in
    /// which it accepts calls and leaves them waiting, and it asks the same sentinel first each
    /// time. So its pause is set to never end, and the supervisor makes another client meanwhile.
    fn client(&self, queue: usize, turn: usize, timeout: Duration) -> Result<Client, FredError> {
        let mut config = self.0.clone();
        // Reports the outcome of the first attempt at once.
        config.fail_fast = true;
        if let ServerConfig::Sentinel { hosts, .. } = &mut config.server {
            let turn = turn.checked_rem(hosts.len());
            hosts.rotate_left(turn.unwrap_or(0));
        }
        let mut builder = Builder::from_config(config);
        builder
            .with_connection_config(|connection| {
                connection.connection_timeout = timeout;
                connection.internal_command_timeout = timeout;
                // Never sent again: it may have been charged.
                connection.max_command_attempts = 1;
                connection.max_command_buffer_len = queue;
                connection.reconnect_on_auth_error = true;
                connection.tcp.nodelay = Some(true);
                connection.tcp.keepalive = Some(TcpKeepalive::new().with_time(KEEPALIVE));
            })
            .set_policy(ReconnectPolicy::new_constant(0, u32::MAX));
        builder.build()
    }
}

/// The parts of a URL, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, allow(dead_code))]
#[derive(Debug)]
pub(crate) struct UrlParts {
    pub(crate) hosts: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u8>,
    /// The name of the primary, and user and password of the sentinels.
    pub(crate) sentinels: Option<(String, Option<String>, Option<String>)>,
}

#[cfg(any(test, fuzzing))]
impl Settings {
    pub(crate) fn url_parts(self) -> UrlParts {
        let hosts = self.0.server.hosts();
        UrlParts {
            hosts: hosts.iter().map(ToString::to_string).collect(),
            user: self.0.username,
            password: self.0.password,
            database: self.0.database,
            sentinels: match self.0.server {
                ServerConfig::Sentinel {
                    service_name,
                    username,
                    password,
                    ..
                } => Some((service_name, username, password)),
                _ => None,
            },
        }
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

async fn opened_by(client: Client) -> Result<Opened, FredError> {
    let (errors, mut connects) = (client.error_rx(), client.reconnect_rx());
    let mut task = FredTask::spawn(&client);
    if let Either::First(ended) = either(&mut task.ended, connects.recv()).await {
        let error = ended.ok().and_then(Result::err);
        return Err(error.unwrap_or_else(lost));
    }
    // fred reports the connection shortly before it takes calls, without an await between.
    while !client.is_connected() && !task.ended.is_finished() {
        yield_now().await;
    }
    Ok(Opened {
        connection: Connection::new(client),
        task,
        errors,
    })
}

impl Opened {
    /// Waits until the connection is lost or must be replaced; returns the cause.
    pub(super) async fn ended(&mut self) -> StoreError {
        let Self {
            connection,
            task,
            errors,
        } = self;
        loop {
            let ended = either(lost_by(task, errors), connection.replacement_requested());
            match timeout(TICK, ended).await {
                Ok(Either::First(error)) => return error,
                Ok(Either::Second(())) => return not_connected("the connection was replaced"),
                Err(_) => {}
            }
            if connection.tick() % PROBE_TICKS == 0 {
                let probe = Box::pin(connection.probe());
                if let Either::First(error) = either(lost_by(task, errors), probe).await {
                    return error;
                }
            }
        }
    }
}

/// Waits until fred reports that the connection is lost, which it does long before it ends.
async fn lost_by(task: &mut FredTask, errors: &mut Errors) -> StoreError {
    let error = match either(errors.recv(), &mut task.ended).await {
        Either::First(reported) => reported.ok().map(|(error, _)| error),
        Either::Second(ended) => ended.ok().and_then(Result::err),
    };
    store_error(error.unwrap_or_else(lost)).not_connected()
}

fn not_connected(why: &'static str) -> StoreError {
    StoreError::not_sent(why).not_connected()
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
