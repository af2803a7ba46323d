//! One call to Redis: sent once, within a deadline, its errors told apart.

use std::{
    error::Error,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fred::{
    clients::{Client, WithOptions},
    error::{Error as FredError, ErrorKind},
    interfaces::{ClientLike, Resp3Frame},
    types::{ClusterHash, CustomCommand, Value, config::Options},
};
use tokio::time::{Instant, timeout};

use super::{
    connection::{Connection, Connections, Link},
    reply::Integers,
    script::{Arguments, Script},
};
use crate::{StoreError, error::StoreErrorKind};

/// What remains of the time that a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        let now = Instant::now();
        // So far away that nobody sees it.
        let ages = Duration::from_secs(86_400 * 365);
        Self(now.checked_add(time).unwrap_or(now + ages))
    }

    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    pub(super) fn is_over(self, now: Self) -> bool {
        self.0 <= now.0
    }

    /// The same instant, so much later.
    pub(super) fn and(self, time: Duration) -> Self {
        Self(self.0.checked_add(time).unwrap_or(self.0))
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// By more than a tick of the timers.
    pub(super) fn is_before(self, other: Self) -> bool {
        self.0 + TICK < other.0
    }

    pub(super) fn earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn later(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// When the time began that ends with it.
    pub(super) fn began(self, timeout: Duration) -> Option<Instant> {
        self.0.checked_sub(timeout)
    }
}

const TICK: Duration = Duration::from_millis(1);

/// How a command is sent to a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// To the node that a slot is on its way to, whose keys it answers for
    /// only when asked so.
    Asking,
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
    let words = arguments().behind(&script.sha1);
    let mut reply = run(connection, "EVALSHA", words, manner, deadline).await;
    if is_unknown(&reply) {
        // Nothing ran. One at a time: the text loads the script for all others.
        // Whoever holds this and looks away must not keep others from it.
        let loading = timeout(deadline.left() / 2, connections.loading.lock());
        let _loading = Box::pin(loading).await;
        if connections.loads.load(Ordering::Relaxed) != loads {
            let words = arguments().behind(&script.sha1);
            reply = Box::pin(run(connection, "EVALSHA", words, manner, deadline)).await;
        }
        if is_unknown(&reply) {
            let words = arguments().behind(&script.text);
            reply = Box::pin(run(connection, "EVAL", words, manner, deadline)).await;
            connections.loads.fetch_add(1, Ordering::Relaxed);
        }
    }
    reply.map_err(store_error)
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
    keys: Vec<Value>,
    manner: Manner,
    deadline: Deadline,
) -> Result<(), StoreError> {
    let connection = connection(link, deadline).await?;
    let options = options(deadline).map_err(store_error)?;
    let call = connection.call(&options);
    let deleted = match manner {
        Manner::Plain => Box::pin(call.client.custom::<Value, _>(command("DEL"), keys)).await,
        Manner::Asking => Box::pin(ask(&call.client, command("DEL"), keys)).await,
    };
    call.ended(deleted).map(drop).map_err(store_error)
}

/// Asks for the slot map of a cluster.
pub(super) async fn slots(link: &Link, deadline: Deadline) -> Result<Value, StoreError> {
    let connection = connection(link, deadline).await?;
    let which = vec![Value::from("SLOTS")];
    let options = options(deadline).map_err(store_error)?;
    let call = connection.call(&options);
    let slots = Box::pin(call.client.custom(command("CLUSTER"), which)).await;
    call.ended(slots).map_err(|error| {
        if error.details().contains("cluster support disabled") {
            let cause = "it is no node of a cluster: connect with redis://";
            return StoreError::with_source(StoreErrorKind::Refused, cause);
        }
        store_error(error)
    })
}

/// Not by fred's own `evalsha` and its like: on a client with options it loses them.
pub(super) fn command(name: &'static str) -> CustomCommand {
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
    StoreError::with_source(kind, error)
}

/// Whether an error is a reply of the server, after which it keeps the connection.
pub(super) fn is_reply(error: &FredError) -> bool {
    match error.kind() {
        ErrorKind::Protocol => true,
        ErrorKind::Auth | ErrorKind::Timeout => false,
        _ => first_word(error.details()).is_some_and(|word| word != "CLUSTERDOWN"),
    }
}

/// Which connections may be the trouble, so that others might do better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    None,
    /// The one that was used.
    ThisOne,
    All,
}

/// `pause`: for how long nobody is asked after this error.
pub(super) fn suspects(error: &StoreError, pause: Duration) -> Suspects {
    // Replies that are out of step stay so.
    if error.is_foreign_reply() {
        return Suspects::ThisOne;
    }
    let said = error.source().and_then(|source| source.downcast_ref());
    let word = said.and_then(|said: &FredError| first_word(said.details()));
    // After a failover the same address may be a replica's, or nobody's.
    let is_elsewhere = error.is_timeout() || matches!(word, Some("READONLY" | "MASTERDOWN"));
    if is_elsewhere && pause >= PATIENCE {
        Suspects::All
    } else {
        Suspects::None
    }
}

/// Shorter pauses are not long enough to be sure.
pub(super) const PATIENCE: Duration = Duration::from_millis(400);

/// What a server says starts with a word in capitals: `ERR`, `NOPERM`, `OOM`.
fn first_word(details: &str) -> Option<&str> {
    let word = details.split(' ').next()?;
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_word.then_some(word)
}
