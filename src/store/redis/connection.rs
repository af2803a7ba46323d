//! Commands on a connection to a Redis server: each is sent once and has a deadline.
//!
//! This file, `connect.rs` and `client_reply.rs` are the only ones that use the client fred.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};

use bytes::Bytes;
use fred::{
    clients::{Client, WithOptions},
    error::{Error as FredError, ErrorKind},
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value, config::Options},
    util::{redis_keyslot, sha1_hash},
};
use tokio::{
    sync::{Mutex, Notify},
    time::timeout,
};

use super::{
    SendMode,
    client_reply::{
        Reply, integers_of_frame, integers_of_value, is_reply, is_unknown_script, store_error,
    },
    deadline::{CONNECT_TIMEOUT, Deadline},
    reply::Integers,
    request::ScriptCall,
};
use crate::control::HEAD_BYTES;
use crate::{StoreError, error::StoreErrorKind};

/// After this many ticks of a second without a reply, one call without a reply is enough
/// to replace the connection: its flow may be dead, while the server is well.
const QUIET_TICKS: u32 = 2;

/// A connection that was made, and may have been lost since.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    has_replied: AtomicBool,
    /// Ticks since the last reply. Starts at 1, so that the first reply is recorded.
    quiet_ticks: AtomicU32,
    /// Whether a call had no reply in time, and none has come since, nor a tick.
    is_stalled: AtomicBool,
    replacement: Notify,
}

/// Which scripts the server was given, for all its connections.
#[derive(Debug, Default)]
pub(super) struct LoadedScripts {
    /// Held by the call that loads a script.
    loading: Mutex<()>,
    count: AtomicUsize,
}

/// A command on a connection.
struct Command<'a> {
    connection: &'a Connection,
    client: WithOptions<Client>,
    /// Whether no reply had come for a while when it was sent.
    was_quiet: bool,
}

impl Connection {
    pub(super) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            has_replied: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(1),
            is_stalled: AtomicBool::new(false),
            replacement: Notify::new(),
        })
    }

    #[cfg(feature = "redis-client")]
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn request_replacement(&self) {
        self.replacement.notify_one();
    }

    pub(super) async fn replacement_requested(&self) {
        self.replacement.notified().await;
    }

    /// Whether its flow probably stands still, as after a packet is lost.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Counts a tick. Returns how many have passed since the last reply.
    pub(super) fn tick(&self) -> u32 {
        // The next call finds out.
        self.is_stalled.store(false, Ordering::Relaxed);
        self.quiet_ticks
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
    }

    /// Whether the server has replied to any command.
    pub(super) fn has_replied(&self) -> bool {
        self.has_replied.load(Ordering::Relaxed)
    }

    fn record_reply(&self) {
        // Nearly always `false` and 0: a value that many threads read and none writes is cheap to
        // read.
        if self.is_stalled() {
            self.is_stalled.store(false, Ordering::Relaxed);
        }
        if self.quiet_ticks.load(Ordering::Relaxed) != 0 {
            self.quiet_ticks.store(0, Ordering::Relaxed);
            self.has_replied.store(true, Ordering::Relaxed);
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
        let command = self.command(&options);
        // The user of a limiter has the right to this command.
        let time = command
            .client
            .custom::<Value, _>(custom("TIME"), Vec::<Value>::new());
        command
            .record(time.await)
            .map_or_else(|error| is_reply(&error), |_| true)
    }

    /// Runs a script by its name or, if Redis does not know it, once by its text.
    pub(super) async fn eval(
        &self,
        scripts: &LoadedScripts,
        call: &ScriptCall<'_>,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Integers, StoreError> {
        let script = call.script();
        let count = scripts.count.load(Ordering::Relaxed);
        let words = || script_words(script.name(sha1_hash), call);
        let mut reply = self.run("EVALSHA", words(), mode, deadline).await;
        if is_unknown_script(&reply) {
            // Nothing ran. One call at a time sends the text, which loads the script for all.
            // A caller that holds the lock and is never polled again must not block the others.
            let loading = timeout(deadline.remaining() / 2, scripts.loading.lock());
            let _loading = Box::pin(loading).await;
            if scripts.count.load(Ordering::Relaxed) != count {
                reply = Box::pin(self.run("EVALSHA", words(), mode, deadline)).await;
            }
            if is_unknown_script(&reply) {
                let words = script_words(&script.text, call);
                reply = Box::pin(self.run("EVAL", words, mode, deadline)).await;
                scripts.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        reply.map_err(store_error)
    }

    async fn run(
        &self,
        name: &'static str,
        arguments: Vec<Value>,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Integers, FredError> {
        let command = self.command(&options(deadline)?);
        command.record(match mode {
            SendMode::Asking => {
                let reply = Box::pin(command.ask(name, arguments)).await;
                reply.and_then(|reply| integers_of_value(&reply))
            }
            SendMode::Batched | SendMode::Alone => {
                let reply = command.client.custom_raw(custom(name), arguments).await;
                reply.and_then(integers_of_frame)
            }
        })
    }

    /// Deletes those keys that exist.
    pub(super) async fn delete(
        &self,
        keys: Vec<String>,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let keys = keys.into_iter().map(Value::from).collect();
        self.send("DEL", keys, mode, deadline).await.map(drop)
    }

    /// Reads the first bytes of a string, and the server's time in microseconds. The text is empty
    /// if there is no such key.
    pub(super) async fn read_text(
        &self,
        key: &str,
        bytes: usize,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<(Vec<u8>, u64), StoreError> {
        let last = Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX) - 1);
        let range = vec![Value::from(key), Value::Integer(0), last];
        // Both are sent before either is answered.
        let (text, time) = tokio::try_join!(
            self.send("GETRANGE", range, mode, deadline),
            self.send("TIME", Vec::new(), mode, deadline),
        )?;
        let text = match text {
            Value::Bytes(text) => Some(text.to_vec()),
            // The client takes some rows of bytes for text.
            Value::String(text) => Some(text.as_bytes().to_vec()),
            Value::Null => Some(Vec::new()),
            _ => None,
        };
        let read = text.zip(microseconds(time));
        read.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignReply))
    }

    /// Replaces a string that starts with `head`, by this script.
    pub(super) async fn replace_text(
        &self,
        script: &'static str,
        key: &str,
        [head, text]: [&[u8]; 2],
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let bytes = |bytes: &[u8]| Value::Bytes(Bytes::copy_from_slice(bytes));
        let (script, one) = (Value::from_static_str(script), Value::Integer(1));
        let head_bytes = Value::Integer(HEAD_BYTES as i64);
        let words = vec![
            script,
            one,
            Value::from(key),
            head_bytes,
            bytes(head),
            bytes(text),
        ];
        match self.send("EVAL", words, mode, deadline).await? {
            Value::Integer(replaced) => Ok(replaced == 1),
            _ => Err(StoreError::new(StoreErrorKind::ForeignReply)),
        }
    }

    /// Sends a command that decides nothing.
    async fn send(
        &self,
        name: &'static str,
        arguments: Vec<Value>,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Value, StoreError> {
        let options = options(deadline).map_err(store_error)?;
        let command = self.command(&options);
        let reply = match mode {
            SendMode::Asking => Box::pin(command.ask(name, arguments)).await,
            SendMode::Batched | SendMode::Alone => {
                Box::pin(command.client.custom(custom(name), arguments)).await
            }
        };
        command.record(reply).map_err(store_error)
    }

    /// Asks for the slot map of a cluster.
    pub(super) async fn slots(&self, deadline: Deadline) -> Result<Reply, StoreError> {
        let options = options(deadline).map_err(store_error)?;
        let command = self.command(&options);
        let which = vec![Value::from("SLOTS")];
        let slots = Box::pin(command.client.custom(custom("CLUSTER"), which)).await;
        command.record(slots).map(Value::into).map_err(|error| {
            if error.details().contains("cluster support disabled") {
                let cause = "it is no node of a cluster: connect with redis://";
                return StoreError::with_source(StoreErrorKind::Refused, cause);
            }
            store_error(error)
        })
    }

    /// Asks for the names of some keys that match a pattern, and where to go on.
    pub(super) async fn scan(
        &self,
        cursor: String,
        pattern: &str,
        count: usize,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        let options = options(deadline).map_err(store_error)?;
        let command = self.command(&options);
        let count = count.to_string();
        let words = [&*cursor, "MATCH", pattern, "COUNT", &count].map(Value::from);
        let page = command.client.custom(custom("SCAN"), words.to_vec()).await;
        command.record(page).map(Value::into).map_err(store_error)
    }

    fn command(&self, options: &Options) -> Command<'_> {
        Command {
            connection: self,
            client: self.client.with_options(options),
            was_quiet: self.quiet_ticks.load(Ordering::Relaxed) >= QUIET_TICKS,
        }
    }
}

impl Command<'_> {
    /// Records how the command ended.
    fn record<T>(&self, reply: Result<T, FredError>) -> Result<T, FredError> {
        match &reply {
            Ok(_) => self.connection.record_reply(),
            Err(error) if is_reply(error) => self.connection.record_reply(),
            Err(error) if *error.kind() == ErrorKind::Timeout => {
                self.connection.is_stalled.store(true, Ordering::Relaxed);
                if self.was_quiet {
                    self.connection.request_replacement();
                }
            }
            Err(_) => {}
        }
        reply
    }

    /// Sends ASKING, which is for the next command on the connection. The client writes a
    /// pipeline in one piece, on the one connection that it has.
    async fn ask(&self, name: &'static str, arguments: Vec<Value>) -> Result<Value, FredError> {
        let pipeline = self.client.pipeline().with_options(self.client.options());
        let _: () = pipeline
            .custom(custom("ASKING"), Vec::<Value>::new())
            .await?;
        let _: () = pipeline.custom(custom(name), arguments).await?;
        let replies: Value = pipeline.all().await?;
        match replies {
            Value::Array(mut replies) => replies.pop(),
            _ => None,
        }
        .ok_or_else(|| FredError::new(ErrorKind::Protocol, "no reply behind that to ASKING"))
    }
}

/// Not by fred's own `evalsha` and its like: on a client with options it loses them.
fn custom(name: &'static str) -> CustomCommand {
    CustomCommand::new_static(name, ClusterHash::FirstKey, false)
}

/// Returns how to send a command: once, and only if the connection stands.
fn options(deadline: Deadline) -> Result<Options, FredError> {
    let remaining = deadline.remaining();
    if remaining.is_zero() {
        // As if the client had no room for it: nothing is sent.
        return Err(FredError::new(ErrorKind::Backpressure, "no time left"));
    }
    Ok(Options {
        max_attempts: Some(1),
        timeout: Some(remaining),
        fail_fast: true,
        ..Options::default()
    })
}

/// Reads a reply to TIME: seconds and microseconds.
fn microseconds(reply: Value) -> Option<u64> {
    let Reply::Array(words) = Reply::from(reply) else {
        return None;
    };
    let [Reply::Text(seconds), Reply::Text(microseconds)] = &words[..] else {
        return None;
    };
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000)?
        .checked_add(microseconds.parse().ok()?)
}

/// Returns the words behind EVAL and EVALSHA: the script, the number of KEYS, KEYS and ARGV.
fn script_words(script: &Bytes, call: &ScriptCall<'_>) -> Vec<Value> {
    let mut arguments = call.arguments();
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

/// Returns the slot of a key in a cluster: only the part in braces counts.
pub(super) fn slot(key: &[u8]) -> u16 {
    redis_keyslot(key)
}
