//! Connecting to a Redis server: the settings, the attempt, the end.
//!
//! This file and `server.rs` are the only ones that use the client fred.

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
use tokio::{sync::broadcast::Receiver, task::yield_now, time::timeout};

use super::{
    cluster::Address,
    either::{Either, either},
    server::{Connection, lost, store_error},
    task::AbortOnDrop,
    url::{self, unusable},
};
use crate::{ConfigError, StoreError};

/// Each step of an attempt to connect takes at most this long.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a connection looks whether it was used.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// After so many ticks without a reply, the server is asked for the time. That finds a
/// dead flow before a check does, and keeps a NAT from dropping one.
const PROBE_TICKS: u32 = 5;
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How to connect: where, and as whom.
#[derive(Clone)]
pub(super) struct Settings(Config);

impl fmt::Debug for Settings {
    /// Never as whom: that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.name())
    }
}

/// A connection that was made, and how its end is noticed.
pub(super) struct Opened {
    pub(super) connection: Arc<Connection>,
    task: AbortOnDrop<Result<(), FredError>>,
    errors: Errors,
}

type Errors = Receiver<(FredError, Option<Server>)>;

impl Settings {
    /// For one server, as whom, and with which database: `user:password@host:port/0`.
    pub(super) fn of_server(address: &str) -> Result<Self, ConfigError> {
        // TLS is set up below, with a provider chosen by name: fred would panic if the
        // application enables two.
        let config = Config::from_url_centralized(&format!("redis://{address}"));
        config.map(Self).map_err(|error| mistake(&error))
    }

    /// For the primary that sentinels name. `watch`: as whom to ask them.
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

    /// The same for another server.
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

    /// Where the server is, if it is one.
    pub(super) fn address(&self) -> Option<Address> {
        match &self.0.server {
            ServerConfig::Centralized { server } => Some(Address::new(&server.host, server.port)),
            _ => None,
        }
    }

    /// How an operator knows the server.
    pub(super) fn name(&self) -> Arc<str> {
        named(&self.0.server)
    }

    /// Reports settings that cannot be used.
    pub(super) fn check(&self, queue: usize) -> Result<(), ConfigError> {
        let client = self.client(queue, 0);
        client.map(drop).map_err(|error| mistake(&error))
    }

    /// Connects once. `turn`: which of several sentinels to ask first.
    pub(super) async fn open(&self, queue: usize, turn: usize) -> Result<Opened, StoreError> {
        let opened = match self.client(queue, turn) {
            Ok(client) => Box::pin(opened_by(client)).await,
            Err(error) => Err(error),
        };
        opened.map_err(|error| store_error(error).not_connected())
    }

    /// A client for one connection. fred would connect again by itself, but only
    /// after a pause in which it takes calls and leaves them waiting, and it would ask
    /// the same sentinel first each time. So its pause never ends, and the
    /// supervisor makes another client meanwhile.
    fn client(&self, queue: usize, turn: usize) -> Result<Client, FredError> {
        let mut config = self.0.clone();
        // The first attempt says at once how it went.
        config.fail_fast = true;
        if let ServerConfig::Sentinel { hosts, .. } = &mut config.server {
            let turn = turn.checked_rem(hosts.len());
            hosts.rotate_left(turn.unwrap_or(0));
        }
        let mut builder = Builder::from_config(config);
        builder
            .with_connection_config(|connection| {
                connection.connection_timeout = CONNECT_TIMEOUT;
                connection.internal_command_timeout = CONNECT_TIMEOUT;
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

/// What a URL says, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, allow(dead_code))]
#[derive(Debug)]
pub(super) struct Said {
    pub(super) hosts: Vec<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u8>,
    /// The name of the primary, and as whom to ask for it.
    pub(super) sentinels: Option<(String, Option<String>, Option<String>)>,
}

#[cfg(any(test, fuzzing))]
impl Settings {
    pub(super) fn said(self) -> Said {
        let hosts = self.0.server.hosts();
        Said {
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
                "no authority was found that TLS could trust: install the system's \
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
        let why = "TLS needs the feature `redis-rustls`, or a client of your own (feature `fred`)";
        Err(unusable(why))
    }
}

/// The details never hold the URL: it has a password in it.
fn mistake(error: &FredError) -> ConfigError {
    url::mistake(error.details())
}

async fn opened_by(client: Client) -> Result<Opened, FredError> {
    // An error that has a listener is not logged by fred at DEBUG: what a server says
    // to AUTH may hold the password.
    let (errors, mut connects) = (client.error_rx(), client.reconnect_rx());
    let mut task = AbortOnDrop(client.connect());
    if let Either::First(ended) = either(&mut task.0, connects.recv()).await {
        let error = ended.ok().and_then(Result::err);
        return Err(error.unwrap_or_else(lost));
    }
    // fred says so before it takes calls, with no await between.
    while !client.is_connected() && !task.0.is_finished() {
        yield_now().await;
    }
    Ok(Opened {
        connection: Connection::new(client),
        task,
        errors,
    })
}

impl Opened {
    /// Waits until the connection is lost or must be replaced; returns why.
    pub(super) async fn ended(&mut self) -> StoreError {
        let Self {
            connection,
            task,
            errors,
        } = self;
        loop {
            let ended = either(lost_by(task, errors), connection.renewed());
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

/// fred says at once that a connection is gone, and only later acts on it.
async fn lost_by(task: &mut AbortOnDrop<Result<(), FredError>>, errors: &mut Errors) -> StoreError {
    let error = match either(errors.recv(), &mut task.0).await {
        Either::First(told) => told.ok().map(|(error, _)| error),
        Either::Second(ended) => ended.ok().and_then(Result::err),
    };
    store_error(error.unwrap_or_else(lost)).not_connected()
}

fn not_connected(why: &'static str) -> StoreError {
    StoreError::not_sent(why).not_connected()
}

/// Never as whom one connects: that is secret.
pub(super) fn named(server: &ServerConfig) -> Arc<str> {
    let hosts: Vec<_> = server.hosts().iter().map(ToString::to_string).collect();
    let hosts = hosts.join(",");
    match server {
        ServerConfig::Sentinel { service_name, .. } => format!("{service_name} of {hosts}").into(),
        _ => hosts.into(),
    }
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
