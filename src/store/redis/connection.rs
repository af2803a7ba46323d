//! Clients of one Redis node, connected in the background and kept so.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use fred::{
    clients::Client,
    error::{Error as FredError, ErrorKind},
    interfaces::ClientLike,
    types::{
        Builder,
        config::{Config, ReconnectPolicy, ServerConfig},
    },
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
    time::{sleep, timeout},
};

use super::{silence::Silence, task::AbortOnDrop, url};
use crate::ConfigError;

/// One attempt to connect takes at most this long.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection on which nothing comes back for so long is given up.
const UNRESPONSIVE: Duration = Duration::from_secs(10);

/// Connected clients, taken in turn.
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

/// What became of the attempts to connect.
#[derive(Debug)]
enum Attempts {
    /// The first has not ended: nobody knows yet whether there is a server.
    None,
    Failed(FredError),
    /// From then on the client looks after its connection.
    Connected,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    attempts: watch::Receiver<Attempts>,
    health: Arc<Health>,
    /// Keeps the client connected.
    supervisor: Option<AbortOnDrop<()>>,
}

/// What is known of a connection.
#[derive(Debug)]
struct Health {
    silence: Silence,
    is_renewing: AtomicBool,
}

impl Connections {
    /// Starts connecting and returns at once.
    pub(super) fn connect(
        runtime: &Handle,
        config: Config,
        count: usize,
        queue: usize,
        on_first_failure: fn(&Arc<str>, FredError),
    ) -> Result<Self, ConfigError> {
        let server = named(&config.server);
        let builder = builder(config, queue);
        let links = (0..count).map(|_| {
            let client = builder.build().map_err(|error| url::mistake(&error))?;
            let (tell, attempts) = watch::channel(Attempts::None);
            let tell = Arc::new(tell);
            let health = Health::new();
            let supervised = (client.clone(), Arc::clone(&health));
            let at = Arc::clone(&server);
            let failed = move |error| on_first_failure(&at, error);
            let work = move || {
                let (client, health) = supervised.clone();
                supervise(client, health, Arc::clone(&tell), failed.clone())
            };
            Ok(Link {
                client,
                attempts,
                health,
                supervisor: Some(AbortOnDrop::keep(runtime, work)),
            })
        });
        let links = links.collect::<Result<_, ConfigError>>()?;
        Ok(Self::of(server, links))
    }

    /// A client that somebody else connected and looks after.
    pub(super) fn given(client: Client) -> Self {
        let server = named(&client.client_config().server);
        let link = Link {
            client,
            attempts: watch::channel(Attempts::Connected).1,
            health: Health::new(),
            supervisor: None,
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

    /// Gives all up and makes others.
    pub(super) fn renew(&self, runtime: &Handle) {
        self.links.iter().for_each(|link| link.renew(runtime));
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
    /// Gives the connection up and makes another, unless that is under way. A
    /// client that was handed in is its owner's: it may have other work under way.
    pub(super) fn renew(&self, runtime: &Handle) {
        if self.supervisor.is_some() {
            let (client, health) = (self.client.clone(), Arc::clone(&self.health));
            runtime.spawn(async move { health.renew(&client).await });
        }
    }

    /// How a call ended that was sent.
    pub(super) fn ended<T>(&self, reply: Result<T, FredError>) -> Result<T, FredError> {
        let is_lost = |error: &FredError| *error.kind() == ErrorKind::Timeout;
        match &reply {
            Err(error) if is_lost(error) => self.health.silence.lost(),
            _ => self.health.silence.broken(),
        }
        reply.map_err(|error| match self.failure() {
            // Says more than that there is no connection.
            Some(failure) if error.is_canceled() => failure,
            _ => without_arguments(error),
        })
    }

    /// Whether the first attempt to connect has ended, however it did.
    pub(super) fn was_tried(&self) -> bool {
        !matches!(*self.attempts.borrow(), Attempts::None)
    }

    pub(super) async fn wait_until_tried(&self) {
        // An error says that the supervisor is gone: nothing to wait for.
        let mut attempts = self.attempts.clone();
        let is_tried = |attempts: &Attempts| !matches!(attempts, Attempts::None);
        let _ = attempts.wait_for(is_tried).await;
    }

    /// Why there is no connection, where there never was one.
    fn failure(&self) -> Option<FredError> {
        match &*self.attempts.borrow() {
            Attempts::Failed(error) => Some(error.clone()),
            Attempts::None | Attempts::Connected => None,
        }
    }
}

impl Health {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            silence: Silence::new(),
            is_renewing: AtomicBool::new(false),
        })
    }

    async fn renew(&self, client: &Client) {
        if !self.is_renewing.swap(true, Ordering::Relaxed) {
            // It tries again by itself; how it went, the next call finds out.
            let _ = timeout(LONGEST_PAUSE, client.force_reconnection()).await;
            self.silence.broken();
            self.is_renewing.store(false, Ordering::Relaxed);
        }
    }
}

/// Connects, and connects again if the client's own task ends.
///
/// That task looks after a connection once there was one; the first is ours to
/// try for, because the task would sleep before its first attempt.
async fn supervise(
    client: Client,
    health: Arc<Health>,
    tell: Arc<watch::Sender<Attempts>>,
    on_first_failure: impl Fn(FredError),
) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let mut task = AbortOnDrop(client.connect());
        let attempt = connected(&client, &mut task).await;
        let attempt = attempt.map_err(without_arguments);
        let is_first = matches!(*tell.borrow(), Attempts::None);
        tell.send_replace(match &attempt {
            Ok(()) => Attempts::Connected,
            Err(error) => {
                if is_first {
                    on_first_failure(error.clone());
                }
                Attempts::Failed(error.clone())
            }
        });
        if attempt.is_ok() {
            while timeout(UNRESPONSIVE / 4, &mut task.0).await.is_err() {
                if health.silence.is_for(UNRESPONSIVE) {
                    health.renew(&client).await;
                }
            }
            pause = SHORTEST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until the client's task has a connection, or has ended without one.
async fn connected(
    client: &Client,
    task: &mut AbortOnDrop<Result<(), FredError>>,
) -> Result<(), FredError> {
    loop {
        // Asked again and again, as what is told in between is missed.
        let mut told = pin!(timeout(SHORTEST_PAUSE, client.wait_for_connect()));
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut task.0).poll(cx) {
                let no_reason = FredError::new(ErrorKind::Canceled, "the client has ended");
                let error = ended.ok().and_then(Result::err);
                return Poll::Ready(Some(Err(error.unwrap_or(no_reason))));
            }
            told.as_mut().poll(cx).map(Result::ok)
        });
        if let Some(outcome) = outcome.await {
            return outcome;
        }
    }
}

/// Never as whom one connects: that is secret.
fn named(server: &ServerConfig) -> Arc<str> {
    let hosts: Vec<_> = server.hosts().iter().map(ToString::to_string).collect();
    let hosts = hosts.join(",");
    match server {
        ServerConfig::Sentinel { service_name, .. } => format!("{service_name} of {hosts}").into(),
        _ => hosts.into(),
    }
}

/// To a command that it does not know, such as a renamed AUTH, a server answers
/// with what it was sent: the password.
pub(super) fn without_arguments(error: FredError) -> FredError {
    match error.details().split_once(", with args beginning with") {
        Some((said, _)) => FredError::new(error.kind().clone(), said.to_owned()),
        None => error,
    }
}

fn builder(mut config: Config, queue: usize) -> Builder {
    // The first attempt says at once how it went.
    config.fail_fast = true;
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
        })
        // 0 attempts: without end.
        .set_policy(ReconnectPolicy::new_exponential(
            0,
            in_ms(SHORTEST_PAUSE),
            in_ms(LONGEST_PAUSE),
            2,
        ));
    builder
}

const fn in_ms(pause: Duration) -> u32 {
    pause.as_millis() as u32
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
