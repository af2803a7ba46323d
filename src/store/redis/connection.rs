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
    command::Command,
    deadline::{CONNECT_TIMEOUT, Deadline},
    reply::Integers,
    request::ScriptCall,
};
use crate::{StoreError, control::HEAD_BYTES, error::StoreErrorKind};

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
struct Attempt<'a> {
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
        let attempt = self.attempt(&options);
        // The user of a limiter has the right to this command.
        let time = attempt
            .client
            .custom::<Value, _>(custom("TIME"), Vec::<Value>::new());
        attempt
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
        let attempt = self.attempt(&options(deadline)?);
        attempt.record(match mode {
            SendMode::Asking => {
                let reply = Box::pin(attempt.ask(name, arguments)).await;
                reply.and_then(|reply| integers_of_value(&reply))
            }
            SendMode::Batched | SendMode::Alone => {
                let reply = attempt.client.custom_raw(custom(name), arguments).await;
                reply.and_then(integers_of_frame)
            }
        })
    }

    /// Sends a command that decides nothing.
    pub(super) async fn send(
        &self,
        command: &Command,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        let options = options(deadline).map_err(store_error)?;
        let attempt = self.attempt(&options);
        let (name, words) = words_of(command);
        let reply = match mode {
            SendMode::Asking => Box::pin(attempt.ask(name, words)).await,
            SendMode::Batched | SendMode::Alone => {
                Box::pin(attempt.client.custom(custom(name), words)).await
            }
        };
        let reply = attempt.record(reply).map_err(store_error)?.into();
        match command.is_answered_by(&reply) {
            true => Ok(reply),
            false => Err(StoreError::new(StoreErrorKind::ForeignReply)),
        }
    }

    fn attempt(&self, options: &Options) -> Attempt<'_> {
        Attempt {
            connection: self,
            client: self.client.with_options(options),
            was_quiet: self.quiet_ticks.load(Ordering::Relaxed) >= QUIET_TICKS,
        }
    }
}

impl Attempt<'_> {
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
