//! Connections to one Redis server, taken in turn.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};
use std::time::Duration;

use fred::{
    clients::{Client, WithOptions},
    error::{Error as FredError, ErrorKind},
    interfaces::{ClientLike, EventInterface},
    socket2::TcpKeepalive,
    types::{
        Builder, Value,
        config::{Config, Options, ReconnectPolicy, Server, ServerConfig},
    },
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, Notify, broadcast::Receiver, watch},
    task::yield_now,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    call::{self, store_error},
    either::{Either, either},
    supervisor::{Report, Supervisor},
    task::AbortOnDrop,
    url,
};
use crate::{ConfigError, StoreError};

/// Each step of an attempt to connect takes at most this long.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a connection looks whether it was used.
const TICK: Duration = Duration::from_secs(1);
/// After so many ticks without a reply, one call that gets none is enough to replace
/// the connection: its flow may be dead, while the server is well.
const QUIET_TICKS: u32 = 2;
/// After so many, it is asked for the time. That finds a dead flow before a check
/// does, and keeps a NAT from dropping one.
const PROBE_TICKS: u32 = 5;
const KEEPALIVE: Duration = Duration::from_secs(10);

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

/// A connection that stands, or has stood.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    was_answered: AtomicBool,
    /// Ticks since the last reply. Starts at 1, so that the first reply is noticed.
    quiet_ticks: AtomicU32,
    renewal: Notify,
}

impl Connections {
    /// Starts connecting and returns at once.
    pub(super) fn connect(
        runtime: &Handle,
        config: &Config,
        count: usize,
        queue: usize,
        report: Report,
    ) -> Result<Self, ConfigError> {
        let server = named(&config.server);
        let open = Open {
            config: config.clone(),
            queue,
        };
        open.client(0).map_err(|error| url::mistake(&error))?;
        let supervisor = Supervisor::new(open, Arc::clone(&server), report);
        let links = (0..count).map(|_| Link::supervised(runtime, &supervisor));
        Ok(Self::of(server, links.collect()))
    }

    /// A client that its owner connects and keeps connected.
    pub(super) fn given(runtime: &Handle, client: Client) -> Self {
        let server = named(&client.client_config().server);
        let connection = Connection::new(client);
        let (publish, state) = watch::channel(State::Connected(Arc::clone(&connection)));
        let publish = Arc::new(publish);
        let work = move || follow(Arc::clone(&connection), Arc::clone(&publish));
        let link = Link {
            state,
            _supervisor: AbortOnDrop::keep(runtime, work),
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
            connection.renewal.notify_one();
        }
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

impl Connection {
    fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            was_answered: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(1),
            renewal: Notify::new(),
        })
    }

    pub(super) fn call(&self, options: &Options) -> Call<'_> {
        Call {
            connection: self,
            client: self.client.with_options(options),
            was_quiet: self.quiet_ticks.load(Ordering::Relaxed) >= QUIET_TICKS,
        }
    }

    /// Whether the server has replied to anything.
    pub(super) fn was_answered(&self) -> bool {
        self.was_answered.load(Ordering::Relaxed)
    }

    fn answered(&self) {
        // Nearly always 0: a value that many threads read and none writes is cheap to read.
        if self.quiet_ticks.load(Ordering::Relaxed) != 0 {
            self.quiet_ticks.store(0, Ordering::Relaxed);
            self.was_answered.store(true, Ordering::Relaxed);
        }
    }

    async fn probe(&self) {
        let options = Options {
            max_attempts: Some(1),
            timeout: Some(CONNECT_TIMEOUT),
            fail_fast: true,
            ..Options::default()
        };
        let call = self.call(&options);
        // The user of a limiter has the right to this command.
        let time = call::command("TIME");
        let time = call.client.custom::<Value, _>(time, Vec::<Value>::new());
        let _ = call.ended(time.await);
    }
}

impl Call<'_> {
    /// Records how it ended.
    pub(super) fn ended<T>(&self, reply: Result<T, FredError>) -> Result<T, FredError> {
        match &reply {
            Ok(_) => self.connection.answered(),
            Err(error) if call::is_reply(error) => self.connection.answered(),
            Err(error) if *error.kind() == ErrorKind::Timeout && self.was_quiet => {
                self.connection.renewal.notify_one();
            }
            Err(_) => {}
        }
        reply.map_err(readable)
    }
}

/// A call on a connection.
pub(super) struct Call<'a> {
    connection: &'a Connection,
    pub(super) client: WithOptions<Client>,
    /// Nothing had come back for a while when it was sent.
    was_quiet: bool,
}

/// How to connect.
#[derive(Debug)]
pub(super) struct Open {
    config: Config,
    queue: usize,
}

/// A connection that was made, and how its end is noticed.
pub(super) struct Opened {
    pub(super) connection: Arc<Connection>,
    task: AbortOnDrop<Result<(), FredError>>,
    errors: Errors,
}

type Errors = Receiver<(FredError, Option<Server>)>;

impl Open {
    /// Connects once. `turn`: which of several sentinels to ask first.
    pub(super) async fn open(&self, turn: usize) -> Result<Opened, StoreError> {
        let opened = self.client(turn);
        let opened = match opened {
            Ok(client) => Box::pin(opened_by(client)).await,
            Err(error) => Err(error),
        };
        opened.map_err(|error| store_error(readable(error)).not_connected())
    }

    /// A client for one connection. fred would connect again by itself, but only
    /// after a pause in which it takes calls and leaves them waiting, and it would ask
    /// the same sentinel first each time. So its pause never ends, and the
    /// supervisor makes another client meanwhile.
    fn client(&self, turn: usize) -> Result<Client, FredError> {
        let mut config = self.config.clone();
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
                connection.max_command_buffer_len = self.queue;
                connection.reconnect_on_auth_error = true;
                connection.tcp.nodelay = Some(true);
                connection.tcp.keepalive = Some(TcpKeepalive::new().with_time(KEEPALIVE));
            })
            .set_policy(ReconnectPolicy::new_constant(0, u32::MAX));
        builder.build()
    }
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
        let mut tick = Instant::now();
        loop {
            tick += TICK;
            let ended = either(lost_by(task, errors), connection.renewal.notified());
            match timeout_at(tick, ended).await {
                Ok(Either::First(error)) => return error,
                Ok(Either::Second(())) => return not_connected("the connection was replaced"),
                Err(_) => {}
            }
            let ticks = connection.quiet_ticks.fetch_add(1, Ordering::Relaxed);
            if (ticks + 1) % PROBE_TICKS == 0 {
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
    let error = readable(error.unwrap_or_else(lost));
    store_error(error).not_connected()
}

/// Follows what a client does that its owner looks after.
async fn follow(connection: Arc<Connection>, publish: Arc<watch::Sender<State>>) {
    let client = &connection.client;
    loop {
        let (mut errors, mut connects) = (client.error_rx(), client.reconnect_rx());
        loop {
            // Errors first: a connection that was made after one is what counts.
            match timeout(TICK, either(errors.recv(), connects.recv())).await {
                Ok(Either::First(Ok((error, _)))) => {
                    let error = store_error(readable(error)).not_connected();
                    publish.send_replace(State::Disconnected(error));
                }
                Ok(Either::Second(Ok(_))) => connected(&connection, &publish),
                // Its owner has ended it, and may connect it again.
                Ok(_) => break,
                // An error that cost no connection.
                Err(_) if client.is_connected() => connected(&connection, &publish),
                Err(_) => {}
            }
        }
        sleep(TICK).await;
    }
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

fn not_connected(why: &'static str) -> StoreError {
    StoreError::not_sent(why).not_connected()
}

fn lost() -> FredError {
    FredError::new(ErrorKind::IO, "the connection was lost")
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

/// What an operator is to read of an error.
fn readable(error: FredError) -> FredError {
    let details = error.details();
    // To a command that it does not know, such as a renamed AUTH, a server replies
    // with what it was sent: the password.
    let said = details.split_once(", with args beginning with");
    let said = said.map(|(said, _)| said);
    // `Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }`
    let by_the_system = details.split_once("message: \"");
    let by_the_system = by_the_system.and_then(|(_, message)| message.split('"').next());
    match said.or(by_the_system) {
        Some(said) => FredError::new(error.kind().clone(), said.to_owned()),
        // The task that had the call has ended.
        None if details == "channel closed" => lost(),
        None => error,
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

    #[test]
    fn errors_are_readable_and_hold_no_argument() {
        let shown = |kind, details: &'static str| {
            let error = readable(FredError::new(kind, details));
            error.details().to_owned()
        };
        let unknown = "ERR unknown command 'AUTH', with args beginning with: 'app' 'secret' ";
        assert_eq!(
            shown(ErrorKind::Unknown, unknown),
            "ERR unknown command 'AUTH'"
        );
        let refused = r#"Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }"#;
        assert_eq!(shown(ErrorKind::IO, refused), "Connection refused");
        assert_eq!(shown(ErrorKind::Unknown, "OOM no"), "OOM no");
    }
}
