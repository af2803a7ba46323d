//! Commands on a connection to a Redis server: each is sent once and has a deadline.
//!
//! This file, `connect.rs`, `client_reply.rs`, `handed_in.rs` and `tls/connector.rs` are the only ones
//! that use the client fred.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
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
    time::{Instant, timeout_at},
};

use super::{
    SendMode,
    client_reply::{
        Reply, integers_of_frame, integers_of_value, is_lost, is_reply, is_unable,
        is_unknown_script, store_error, without_scripts,
    },
    reply::Integers,
    request::ScriptCall,
    script::Script,
};
use crate::{StoreError, control::HEAD_BYTES, error::StoreErrorKind};

#[cfg(feature = "testing")]
use crate::store::StoreFuture;

/// After this many ticks of a second without a reply, one call without a reply is enough
/// to replace the connection: its flow may be dead, while the server is well.
const QUIET_TICKS: u32 = 2;
/// How long a server may take to reply while no caller waits for it.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A server in this process that stands in for Redis: for tests.
#[cfg(feature = "testing")]
pub(crate) trait ServerDouble: std::fmt::Debug + Send + Sync {
    /// Replies to the script for these checks.
    fn eval(&self, call: &ScriptCall<'_>, deadline: Instant) -> StoreFuture<Integers>;

    fn send(&self, command: Command, deadline: Instant) -> StoreFuture<Reply>;
}

/// A connection that was made, and may have been lost since.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    has_replied: AtomicBool,
    /// Ticks since the last reply. Starts at 1, so that the first reply is recorded.
    quiet_ticks: AtomicU32,
    /// Whether a call had no reply in time, and none has come since, nor a tick.
    is_stalled: AtomicBool,
    /// The scripts that were loaded over this connection: a bit for each set of algorithms.
    loaded: AtomicU64,
    replacement: Notify,
    /// Replies in place of Redis.
    #[cfg(feature = "testing")]
    double: Option<Box<dyn ServerDouble>>,
}

impl Connection {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            has_replied: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(1),
            is_stalled: AtomicBool::new(false),
            loaded: AtomicU64::new(0),
            replacement: Notify::new(),
            #[cfg(feature = "testing")]
            double: None,
        }
    }

    /// Returns a connection to a server in this process.
    #[cfg(feature = "testing")]
    pub(super) fn of_double(double: Box<dyn ServerDouble>) -> Self {
        Self {
            double: Some(double),
            ..Self::new(Client::default())
        }
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

    /// Asks for the time, which the user of a limiter has the right to. Returns whether the server
    /// replied.
    pub(super) async fn probe(&self) -> bool {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let reply = self.send(&Command::Time, SendMode::Alone, deadline).await;
        !reply.is_err_and(|error| error.is_no_answer())
    }

    /// Checks that the server runs scripts, by a call of one that no server knows. A server without
    /// `EVALSHA` quotes the arguments, and fred never ends a call whose error is not UTF-8. So the error
    /// of a check, whose arguments are binary, would be a timeout.
    pub(super) async fn check_scripts(&self, timeout: Duration) -> Result<(), FredError> {
        let options = options(Instant::now() + timeout)?;
        let words = vec![Value::from_static_str(NO_SCRIPT), Value::Integer(0)];
        let client = self.client.with_options(&options);
        let reply = client.custom_raw(custom("EVALSHA"), words).await;
        match reply.and_then(integers_of_frame) {
            Err(error) if is_unable(&error) => Err(without_scripts(&error)),
            Err(error) if is_lost(&error) => Err(error),
            // Whatever else is wrong, the next check finds out.
            _ => Ok(()),
        }
    }

    /// Runs a script by its name or, if Redis does not know it, once by its text. `loaded_at`: when a
    /// text was sent last, locked by the call that sends one.
    pub(super) async fn eval(
        &self,
        loaded_at: &Mutex<Option<Instant>>,
        call: &ScriptCall<'_>,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<Integers, StoreError> {
        #[cfg(feature = "testing")]
        if let Some(double) = &self.double {
            return double.eval(call, deadline).await;
        }
        let script = call.script(sha1_hash);
        let run = |name, script| self.run(name, script_words(script, call), mode, deadline);
        let asked_at = Instant::now();
        let mut reply = match self.begin_loading(script) {
            true => Box::pin(self.load_and_run(script, call, mode, deadline)).await,
            false => run("EVALSHA", &script.name).await,
        };
        if is_unknown_script(&reply) {
            // Nothing ran. One call at a time sends the text, which loads the script for all.
            // A caller that holds the lock and is never polled again must not block the others.
            let longest = Instant::now() + remaining(deadline) / 2;
            let loading = Box::pin(timeout_at(longest, loaded_at.lock())).await;
            // Unless the text was sent meanwhile, the name is unknown still. To ask again may take too
            // long if the server is far away.
            if !loading.as_ref().is_ok_and(|at| **at < Some(asked_at)) {
                reply = Box::pin(run("EVALSHA", &script.name)).await;
            }
            if is_unknown_script(&reply) {
                reply = Box::pin(run("EVAL", &script.text)).await;
                let _ = loading.map(|mut at| *at = Some(Instant::now()));
            }
        }
        reply.map_err(store_error)
    }

    /// Returns whether this connection is asked for the script for the first time.
    fn begin_loading(&self, script: &Script) -> bool {
        let bit = 1 << script.algorithms;
        // After the first time, a value that many threads read and none writes.
        self.loaded.load(Ordering::Relaxed) & bit == 0
            && self.loaded.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Runs a script by its name, right behind a call without checks that loads its text. A server
    /// that is far away then knows it after one round trip in place of two.
    async fn load_and_run(
        &self,
        script: &Script,
        call: &ScriptCall<'_>,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<Integers, FredError> {
        let no_checks = Value::Bytes(Bytes::from_static(&[0; 16]));
        let words = vec![
            Value::Bytes(script.text.clone()),
            Value::Integer(0),
            no_checks,
        ];
        let load = self.run("EVAL", words, SendMode::Alone, deadline);
        let run = self.run("EVALSHA", script_words(&script.name, call), mode, deadline);
        // Without the right to send texts, the script may be known all the same.
        let (_, reply) = tokio::join!(load, run);
        reply
    }

    async fn run(
        &self,
        name: &'static str,
        arguments: Vec<Value>,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<Integers, FredError> {
        let client = self.client.with_options(&options(deadline)?);
        let reply = async {
            match mode {
                SendMode::Asking => {
                    let reply = Box::pin(ask(&client, name, arguments)).await;
                    integers_of_value(&reply?)
                }
                SendMode::Batched | SendMode::Alone => {
                    let reply = client.custom_raw(custom(name), arguments).await;
                    integers_of_frame(reply?)
                }
            }
        };
        self.recorded(reply).await
    }

    /// Sends a command that decides nothing.
    pub(super) async fn send(
        &self,
        command: &Command,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        #[cfg(feature = "testing")]
        if let Some(double) = &self.double {
            return double.send(command.clone(), deadline).await;
        }
        let options = options(deadline).map_err(store_error)?;
        let client = self.client.with_options(&options);
        let (name, words) = words_of(command);
        let reply = async {
            match mode {
                SendMode::Asking => Box::pin(ask(&client, name, words)).await,
                SendMode::Batched | SendMode::Alone => {
                    Box::pin(client.custom(custom(name), words)).await
                }
            }
        };
        let reply: Value = self.recorded(reply).await.map_err(store_error)?;
        let reply = reply.into();
        match command.is_answered_by(&reply) {
            true => Ok(reply),
            false => Err(StoreError::new(StoreErrorKind::ForeignReply)),
        }
    }

    /// Waits for the reply to a command, and records how it ended.
    async fn recorded<T>(
        &self,
        reply: impl Future<Output = Result<T, FredError>>,
    ) -> Result<T, FredError> {
        let was_quiet = self.quiet_ticks.load(Ordering::Relaxed) >= QUIET_TICKS;
        let reply = reply.await;
        match &reply {
            Err(error) if *error.kind() == ErrorKind::Timeout => {
                self.is_stalled.store(true, Ordering::Relaxed);
                if was_quiet {
                    self.request_replacement();
                }
            }
            Err(error) if !is_reply(error) => {}
            _ => self.record_reply(),
        }
        reply
    }
}

/// Sends ASKING, which is for the next command on the connection. The client writes a
/// pipeline in one piece, on the one connection that it has.
async fn ask(
    client: &WithOptions<Client>,
    name: &'static str,
    arguments: Vec<Value>,
) -> Result<Value, FredError> {
    let pipeline = client.pipeline().with_options(client.options());
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

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Not by fred's own `evalsha` and its like: on a client with options it loses them.
fn custom(name: &'static str) -> CustomCommand {
    CustomCommand::new_static(name, ClusterHash::FirstKey, false)
}

/// Returns how to send a command: once, and only if the connection stands.
fn options(deadline: Instant) -> Result<Options, FredError> {
    let remaining = remaining(deadline);
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

/// The name of no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Replaces a control document.
const REPLACE: &str = include_str!("lua/control.lua");

fn words_of(command: &Command) -> (&'static str, Vec<Value>) {
    let text = |text: &str| Value::from(text);
    let bytes = |bytes: &[u8]| Value::Bytes(Bytes::copy_from_slice(bytes));
    let integer = |count: usize| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    match command {
        Command::Delete { keys } => ("DEL", keys.iter().map(|key| text(key)).collect()),
        Command::Scan {
            cursor,
            pattern,
            count,
        } => {
            let count = count.to_string();
            let words = [cursor, "MATCH", pattern, "COUNT", &count];
            ("SCAN", words.map(text).to_vec())
        }
        Command::ReadText { key, bytes } => {
            let last = integer(bytes.saturating_sub(1));
            ("GETRANGE", vec![text(key), Value::Integer(0), last])
        }
        Command::ReplaceText {
            key,
            head,
            text: new,
        } => {
            let (script, one) = (Value::from_static_str(REPLACE), Value::Integer(1));
            let length = integer(HEAD_BYTES);
            (
                "EVAL",
                vec![script, one, text(key), length, bytes(head), bytes(new)],
            )
        }
        Command::Time => ("TIME", Vec::new()),
        Command::Slots => ("CLUSTER", vec![text("SLOTS")]),
    }
}

/// Returns the words behind EVAL and EVALSHA: the script, the number of KEYS, KEYS and ARGV.
fn script_words(script: &Bytes, call: &ScriptCall<'_>) -> Vec<Value> {
    let (mut keys, key_ends, numbers) = call.arguments();
    let mut words = Vec::with_capacity(3 + key_ends.len());
    words.push(Value::Bytes(script.clone()));
    words.push(Value::Integer(key_ends.len() as i64));
    let mut start = 0;
    for end in key_ends {
        words.push(Value::Bytes(keys.split_to(end - start)));
        start = end;
    }
    words.push(Value::Bytes(numbers));
    words
}

/// Returns the slot of a key in a cluster: only the part in braces counts.
pub(super) fn slot(key: &[u8]) -> u16 {
    redis_keyslot(key)
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Deletes those keys that exist.
    Delete { keys: Vec<String> },
    /// Asks for the names of some keys that match a pattern, and for the next cursor.
    Scan {
        cursor: String,
        pattern: String,
        count: usize,
    },
    /// Reads the first `bytes` bytes of a control document. The result is empty if there is no
    /// document.
    ReadText { key: Arc<str>, bytes: usize },
    /// Replaces a control document that starts with `head`. The reply is 1 if it did.
    ReplaceText {
        key: Arc<str>,
        head: Vec<u8>,
        text: Vec<u8>,
    },
    /// Asks for the server's time.
    Time,
    /// Asks for the slot map of a cluster.
    Slots,
}

impl Command {
    /// Whether it is about buckets, so that the breaker counts how it ends. No check waits for
    /// other commands, and a node may know the slot map and serve no keys.
    pub(super) const fn is_of_buckets(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::Scan { .. })
    }

    /// Whether a reply has the form of one to this command.
    pub(super) const fn is_answered_by(&self, reply: &Reply) -> bool {
        match self {
            Self::Delete { .. } | Self::ReplaceText { .. } => matches!(reply, Reply::Integer(_)),
            Self::ReadText { .. } => matches!(reply, Reply::Nil | Reply::Text(_) | Reply::Bytes(_)),
            Self::Scan { .. } | Self::Time | Self::Slots => matches!(reply, Reply::Array(_)),
        }
    }
}
