//! Commands on a connection to a Redis server: sent once, within a deadline, their
//! errors told apart.
//!
//! This file and `pool.rs` are the only ones that use the client fred.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use fred::{
    clients::{Client, WithOptions},
    error::{Error as FredError, ErrorKind},
    interfaces::{ClientLike, Resp3Frame},
    types::{ClusterHash, CustomCommand, Value, config::Options},
    util::{redis_keyslot, sha1_hash},
};
use tokio::{sync::Notify, time::timeout};

use super::{
    call::{Deadline, Manner},
    connection::{Connections, Link},
    pool::CONNECT_TIMEOUT,
    reply::Integers,
    script::{Arguments, Script},
};
use crate::{StoreError, error::StoreErrorKind};

/// After so many ticks of a second without a reply, one call that gets none is enough to
/// replace the connection: its flow may be dead, while the server is well.
const QUIET_TICKS: u32 = 2;

/// A connection that stands, or has stood.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    was_answered: AtomicBool,
    /// Ticks since the last reply. Starts at 1, so that the first reply is noticed.
    quiet_ticks: AtomicU32,
    renewal: Notify,
}

impl Connection {
    pub(super) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            was_answered: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(1),
            renewal: Notify::new(),
        })
    }

    #[cfg(feature = "fred")]
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Has it replaced.
    pub(super) fn renew(&self) {
        self.renewal.notify_one();
    }

    pub(super) async fn renewed(&self) {
        self.renewal.notified().await;
    }

    /// Counts a tick. How many have passed since the last reply.
    pub(super) fn tick(&self) -> u32 {
        self.quiet_ticks
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
    }

    fn call(&self, options: &Options) -> Call<'_> {
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

    /// Asks for the time. Returns whether the server replied.
    pub(super) async fn probe(&self) -> bool {
        let options = Options {
            max_attempts: Some(1),
            timeout: Some(CONNECT_TIMEOUT),
            fail_fast: true,
            ..Options::default()
        };
        let call = self.call(&options);
        // The user of a limiter has the right to this command.
        let time = command("TIME");
        let time = call.client.custom::<Value, _>(time, Vec::<Value>::new());
        call.ended(time.await)
            .map_or_else(|error| is_reply(&error), |_| true)
    }
}

impl Call<'_> {
    /// Records how it ended.
    fn ended<T>(&self, reply: Result<T, FredError>) -> Result<T, FredError> {
        match &reply {
            Ok(_) => self.connection.answered(),
            Err(error) if is_reply(error) => self.connection.answered(),
            Err(error) if *error.kind() == ErrorKind::Timeout && self.was_quiet => {
                self.connection.renew();
            }
            Err(_) => {}
        }
        reply
    }
}

/// A call on a connection.
struct Call<'a> {
    connection: &'a Connection,
    client: WithOptions<Client>,
    /// Nothing had come back for a while when it was sent.
    was_quiet: bool,
}

/// Runs a script by its name or, if Redis does not know it, once by its text.
pub(super) async fn script(
    connections: &Connections,
    link: &Link,
    script: &Script,
    arguments: impl Fn() -> Arguments,
    manner: Manner,
    deadline: Deadline,
) -> Result<Integers, StoreError> {
    let connection = &*connection(link, deadline).await?;
    let loads = connections.loads.load(Ordering::Relaxed);
    let words = command_words(&script.sha1, arguments());
    let mut reply = run(connection, "EVALSHA", words, manner, deadline).await;
    if is_unknown(&reply) {
        // Nothing ran. One at a time: the text loads the script for all others.
        // A caller that holds the lock and is never polled again must not block the others.
        let loading = timeout(deadline.left() / 2, connections.loading.lock());
        let _loading = Box::pin(loading).await;
        if connections.loads.load(Ordering::Relaxed) != loads {
            let words = command_words(&script.sha1, arguments());
            reply = Box::pin(run(connection, "EVALSHA", words, manner, deadline)).await;
        }
        if is_unknown(&reply) {
            let words = command_words(&script.text, arguments());
            reply = Box::pin(run(connection, "EVAL", words, manner, deadline)).await;
            connections.loads.fetch_add(1, Ordering::Relaxed);
        }
    }
    reply.map_err(store_error)
}

/// As a command has them: the script, the number of KEYS, KEYS and ARGV.
fn command_words(script: &Bytes, mut arguments: Arguments) -> Vec<Value> {
    let mut words = Vec::with_capacity(3 + arguments.key_ends.len());
    words.push(Value::Bytes(script.clone()));
    words.push(Value::Integer(arguments.key_ends.len() as i64));
    let mut start = 0;
    for end in &arguments.key_ends {
        words.push(Value::Bytes(arguments.keys.split_to(end - start)));
        start = *end;
    }
    words.push(Value::Bytes(arguments.numbers));
    words
}

async fn run(
    connection: &Connection,
    name: &'static str,
    arguments: Vec<Value>,
    manner: Manner,
    deadline: Deadline,
) -> Result<Integers, FredError> {
    let call = connection.call(&options(deadline)?);
    call.ended(match manner {
        Manner::Plain => {
            let reply = call.client.custom_raw(command(name), arguments).await;
            reply.and_then(integers_of_frame)
        }
        Manner::Asking => {
            let reply = Box::pin(ask(&call.client, command(name), arguments)).await;
            reply.and_then(|reply| integers_of_value(&reply))
        }
    })
}

fn is_unknown(reply: &Result<Integers, FredError>) -> bool {
    let error = reply.as_ref().err();
    error.is_some_and(|error| error.details().starts_with("NOSCRIPT"))
}

/// As the server's words stand there: the client would copy them.
fn integers_of_frame(reply: Resp3Frame) -> Result<Integers, FredError> {
    match reply {
        Resp3Frame::BlobString { data, .. } => integers(&data),
        Resp3Frame::SimpleError { data, .. } => Err(said(&data)),
        Resp3Frame::BlobError { data, .. } => Err(said(&String::from_utf8_lossy(&data))),
        _ => Err(no_integers()),
    }
}

pub(super) fn integers_of_value(reply: &Value) -> Result<Integers, FredError> {
    match reply {
        Value::Bytes(row) => integers(row),
        // Of some bytes the client thinks that they are text.
        Value::String(row) => integers(row.as_bytes()),
        _ => Err(no_integers()),
    }
}

fn integers(row: &[u8]) -> Result<Integers, FredError> {
    let mut integers = Integers::with_capacity(row.len() / size_of::<f64>());
    let mut rest = row;
    while let Some((double, behind)) = rest.split_first_chunk() {
        let number = f64::from_le_bytes(*double);
        // What is no integer, or too large for one, is another number there and back.
        let integer = number as i64;
        if integer as f64 != number {
            return Err(no_integers());
        }
        integers.push(integer);
        rest = behind;
    }
    match rest {
        [] => Ok(integers),
        _ => Err(no_integers()),
    }
}

fn no_integers() -> FredError {
    FredError::new(ErrorKind::Protocol, "not a row of integers")
}

/// An error that the server answered.
fn said(error: &str) -> FredError {
    let kind = match first_word(error) {
        Some("NOAUTH" | "WRONGPASS") => ErrorKind::Auth,
        Some("MOVED" | "ASK" | "CLUSTERDOWN") => ErrorKind::Cluster,
        _ => ErrorKind::Unknown,
    };
    FredError::new(kind, error.to_owned())
}

/// Deletes keys, those that are there.
pub(super) async fn delete(
    link: &Link,
    keys: Vec<String>,
    manner: Manner,
    deadline: Deadline,
) -> Result<(), StoreError> {
    let connection = connection(link, deadline).await?;
    let options = options(deadline).map_err(store_error)?;
    let call = connection.call(&options);
    let keys: Vec<_> = keys.into_iter().map(Value::from).collect();
    let deleted = match manner {
        Manner::Plain => Box::pin(call.client.custom::<Value, _>(command("DEL"), keys)).await,
        Manner::Asking => Box::pin(ask(&call.client, command("DEL"), keys)).await,
    };
    call.ended(deleted).map(drop).map_err(store_error)
}

/// Asks for the slot map of a cluster.
pub(super) async fn slots(link: &Link, deadline: Deadline) -> Result<Reply, StoreError> {
    let connection = connection(link, deadline).await?;
    let which = vec![Value::from("SLOTS")];
    let options = options(deadline).map_err(store_error)?;
    let call = connection.call(&options);
    let slots = Box::pin(call.client.custom(command("CLUSTER"), which)).await;
    call.ended(slots).map(Value::into).map_err(|error| {
        if error.details().contains("cluster support disabled") {
            let cause = "it is no node of a cluster: connect with redis://";
            return StoreError::with_source(StoreErrorKind::Refused, cause);
        }
        store_error(error)
    })
}

/// Not by fred's own `evalsha` and its like: on a client with options it loses them.
fn command(name: &'static str) -> CustomCommand {
    CustomCommand::new_static(name, ClusterHash::FirstKey, false)
}

/// ASKING is for the next command on its connection. The client writes a
/// pipeline in one piece, on the one connection that it has.
async fn ask(
    client: &WithOptions<Client>,
    command: CustomCommand,
    arguments: Vec<Value>,
) -> Result<Value, FredError> {
    let asking = self::command("ASKING");
    let pipeline = client.pipeline().with_options(client.options());
    let _: () = pipeline.custom(asking, Vec::<Value>::new()).await?;
    let _: () = pipeline.custom(command, arguments).await?;
    let replies: Value = pipeline.all().await?;
    match replies {
        Value::Array(mut replies) => replies.pop(),
        _ => None,
    }
    .ok_or_else(|| FredError::new(ErrorKind::Protocol, "no reply behind that to ASKING"))
}

/// Returns the connection of a link. Waits while it may come in a moment.
async fn connection(link: &Link, deadline: Deadline) -> Result<Arc<Connection>, StoreError> {
    if let Some(known) = link.connection() {
        return known;
    }
    let not_yet = || StoreError::not_sent("there is no connection yet");
    let settled = timeout(deadline.left(), link.settled());
    Box::pin(settled).await.map_err(|_| not_yet())?;
    link.connection().unwrap_or_else(|| Err(not_yet()))
}

/// How to send on a connection in the time that is left: once, and only if it
/// stands.
fn options(deadline: Deadline) -> Result<Options, FredError> {
    let left = deadline.left();
    if left.is_zero() {
        // As where the client has no room for it: nothing is sent.
        return Err(FredError::new(ErrorKind::Backpressure, "no time left"));
    }
    Ok(Options {
        max_attempts: Some(1),
        timeout: Some(left),
        fail_fast: true,
        ..Options::default()
    })
}

/// What an error of the client means.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn store_error(error: FredError) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::Timeout => StoreErrorKind::Timeout,
        ErrorKind::Backpressure => StoreErrorKind::Overloaded,
        ErrorKind::Protocol | ErrorKind::Parse => StoreErrorKind::ForeignReply,
        ErrorKind::Auth => StoreErrorKind::Refused,
        _ => match first_word(error.details()) {
            // The cluster has lost a part of itself, and this one serves nobody.
            Some("CLUSTERDOWN") => StoreErrorKind::Unavailable,
            Some("MOVED" | "ASK" | "TRYAGAIN") => StoreErrorKind::Redirected,
            Some(_) => StoreErrorKind::Refused,
            None => StoreErrorKind::Unavailable,
        },
    };
    StoreError::with_source(kind, RedisError(readable(&error)))
}

/// Whether an error is a reply of the server, after which it keeps the connection.
fn is_reply(error: &FredError) -> bool {
    match error.kind() {
        ErrorKind::Protocol => true,
        ErrorKind::Auth | ErrorKind::Timeout => false,
        _ => first_word(error.details()).is_some_and(|word| word != "CLUSTERDOWN"),
    }
}

/// What Redis, the network or the client says of a failure.
#[derive(Clone, Debug)]
pub(super) struct RedisError(String);

impl RedisError {
    pub(super) fn details(&self) -> &str {
        &self.0
    }

    /// The word in capitals with which a server's error starts.
    pub(super) fn word(&self) -> Option<&str> {
        first_word(&self.0)
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RedisError {}

/// What an operator is to read of an error.
fn readable(error: &FredError) -> String {
    let details = error.details();
    // To a command that it does not know, such as a renamed AUTH, a server replies
    // with what it was sent: the password.
    let said = details.split_once(", with args beginning with");
    let said = said.map(|(said, _)| said);
    // `Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }`
    let by_the_system = details.split_once("message: \"");
    let by_the_system = by_the_system.and_then(|(_, message)| message.split('"').next());
    // Newer versions name the user who lacks a right.
    let lacked = details.strip_prefix("NOPERM User ");
    if let Some((_, lacked)) = lacked.and_then(|rest| rest.split_once(' ')) {
        return format!("NOPERM this user {lacked}");
    }
    match said.or(by_the_system) {
        Some(said) => said.to_owned(),
        // The task that had the call has ended.
        None if details == "channel closed" => LOST.to_owned(),
        None => details.to_owned(),
    }
}

const LOST: &str = "the connection was lost";

pub(super) fn lost() -> FredError {
    FredError::new(ErrorKind::IO, LOST)
}

/// A reply, as far as anything here reads one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    Array(Vec<Self>),
    Other,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Integer(integer) => Self::Integer(integer),
            Value::String(_) | Value::Bytes(_) => value.as_string().map_or(Self::Other, Self::Text),
            Value::Array(values) => Self::Array(values.into_iter().map(Self::from).collect()),
            _ => Self::Other,
        }
    }
}

/// The slot of a key in a cluster: what stands in braces alone decides.
pub(super) fn slot(key: &str) -> u16 {
    redis_keyslot(key.as_bytes())
}

/// The name by which a server knows a script.
pub(super) fn script_name(text: &str) -> String {
    sha1_hash(text)
}

/// What a server says starts with a word in capitals: `ERR`, `NOPERM`, `OOM`.
fn first_word(details: &str) -> Option<&str> {
    let word = details.split(' ').next()?;
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_word.then_some(word)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_readable_and_hold_no_argument() {
        let shown = |kind, details: &'static str| readable(&FredError::new(kind, details));
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
