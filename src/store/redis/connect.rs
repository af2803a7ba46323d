//! Connecting to a Redis server: the settings, the attempt, the end of the connection.
//!
//! This file, `connection.rs`, `client_reply.rs`, `handed_in.rs` and `tls/connector.rs` are the only
//! ones that use the client fred.

use std::{fmt, io, sync::Arc, time::Duration};

use fred::{
    clients::Client,
    error::{Error as FredError, ErrorKind},
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
    address::{Address, unusable},
    client_reply::{is_lost, lost, readable, store_error},
    connection::Connection,
    tls::{Tls, TlsSettings},
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
pub(crate) struct Settings {
    pub(crate) config: Config,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
}

/// What a URL does not have: settings of the builder for connecting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(super) tls: TlsSettings,
    pub(super) credentials: Option<Credentials>,
}

/// Returns user and password for the next connection.
#[derive(Clone)]
pub(super) struct Credentials(
    pub(super) Arc<dyn Fn() -> io::Result<(String, String)> + Send + Sync>,
);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

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
        Ok(Self {
            config,
            tls: None,
            credentials: None,
        })
    }

    /// Adds the settings of the builder. `is_tls`: whether the URL asks for TLS.
    pub(super) fn add(&mut self, access: &Access, is_tls: bool) -> Result<(), ConfigError> {
        if access.credentials.is_some() && self.config.password.is_some() {
            let why =
                "it has a password, and `credentials(..)` gives another; leave it out of the URL";
            return Err(unusable(why));
        }
        self.credentials = access.credentials.clone();
        self.tls = match is_tls {
            true => Some(Tls::new(&access.tls)?),
            false => access.tls.check_unused().map(|()| None)?,
        };
        Ok(())
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
        primary.config.server = ServerConfig::Sentinel {
            hosts: servers,
            service_name: service_name.to_owned(),
            username: watch.config.username,
            password: watch.config.password,
        };
        Ok(primary)
    }

    /// Returns the same settings for another server.
    pub(super) fn at(&self, address: &Address) -> Self {
        let mut settings = self.clone();
        let (host, port) = (&address.host, address.port);
        let server = match host.contains(':') {
            true => Server::new(format!("[{host}]"), port),
            false => Server::new(host, port),
        };
        settings.config.server = ServerConfig::Centralized { server };
        settings
    }

    /// Returns the address, unless sentinels name the server.
    pub(super) fn address(&self) -> Option<Address> {
        match &self.config.server {
            ServerConfig::Centralized { server } => Some(Address::new(&server.host, server.port)),
            _ => None,
        }
    }

    /// Returns the name by which operators know the server.
    pub(super) fn name(&self) -> Arc<str> {
        named(&self.config.server)
    }

    /// Connects once. `turn`: which sentinel to ask first. `timeout`: for each step.
    pub(super) async fn open(
        &self,
        queue: usize,
        turn: usize,
        timeout: Duration,
    ) -> Result<Opened, StoreError> {
        let client = self.client(queue, turn, timeout)?;
        let mut connects = client.reconnect_rx();
        let mut opened = Opened::spawn(client.clone());
        select! {
            biased;
            ended = &mut opened.ended => {
                let error = ended.ok().flatten().unwrap_or_else(lost);
                return Err(self.explained(error).not_connected());
            }
            _ = connects.recv() => {}
        }
        // fred reports the connection shortly before it takes calls, without an await between.
        while !client.is_connected() && !opened.ended.is_finished() {
            yield_now().await;
        }
        match opened.connection.check_scripts(timeout).await {
            Ok(()) => Ok(opened),
            Err(error) => Err(self.explained(error).not_connected()),
        }
    }

    /// Returns why an attempt failed, with what to do if the port may speak another protocol.
    fn explained(&self, error: FredError) -> StoreError {
        let advice = match (error.kind(), &self.tls) {
            (ErrorKind::Timeout, Some(_)) => "if the port does not speak TLS, write redis://",
            (ErrorKind::Protocol, None) => IF_TLS,
            (_, None) if is_lost(&error) => IF_TLS,
            (ErrorKind::Sentinel, Some(_)) if error.details().contains("all sentinel") => {
                "if they run, compare their certificates with the TLS settings"
            }
            _ => return store_error(error),
        };
        let details = readable(&error);
        let details = format!("{}; {advice}", details.trim_end_matches('.'));
        store_error(FredError::new(error.kind().clone(), details))
    }

    /// Returns a client for one connection. fred reconnects on its own, but only after a pause in
    /// which it accepts calls and leaves them waiting, and it asks the same sentinel first each
    /// time. So its pause is set to never end, and the supervisor makes another client meanwhile.
    fn client(&self, queue: usize, turn: usize, timeout: Duration) -> Result<Client, StoreError> {
        let mut config = self.config.clone();
        if let Some(Credentials(read)) = &self.credentials {
            let why = |error| format!("no credentials: {error}");
            let (user, password) = read().map_err(|error| cannot_connect(why(error)))?;
            if !user.is_empty() {
                config.username = Some(user);
            }
            config.password = Some(password);
        }
        #[cfg(feature = "redis-rustls")]
        if let Some(tls) = &self.tls {
            tls.apply(&mut config)
                .map_err(|error| cannot_connect(error.to_string()))?;
        }
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
        Ok(Client::new(config, None, Some(connection), Some(never)))
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

/// A server with TLS ends a connection that begins with a command, or answers with an alert.
const IF_TLS: &str = "if the port speaks TLS, write rediss://";

/// Returns the error of an attempt that cannot begin.
fn cannot_connect(why: String) -> StoreError {
    StoreError::not_sent(why).not_connected()
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
