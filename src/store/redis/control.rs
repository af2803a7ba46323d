//! The control document in Redis: one string under one key.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    RedisStore, SendMode,
    client_reply::Reply,
    connection::Command,
    unleased::{Servers, Unleased},
};
use crate::{
    Clock, StoreError,
    control::{Control, HEAD_BYTES, Held, MAX_BYTES, Source},
    error::StoreErrorKind,
    store::{StoreFuture, in_runtime::InRuntime},
    util::lock::lock,
};

/// A document of a megabyte takes longer than a check may. No request waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The document of a store.
struct InRedis {
    store: Arc<Unleased>,
    key: Arc<str>,
    clock: Arc<ServerClock>,
}

impl InRedis {
    /// Sends a command to the primary that has the key.
    fn send(&self, command: Command) -> StoreFuture<Reply> {
        let (store, key) = (Arc::clone(&self.store), Arc::clone(&self.key));
        let runtime = store.shared.runtime.clone();
        let reply = async move {
            let deadline = Instant::now() + store.shared.timeout.max(TIMEOUT);
            match store.servers()? {
                Servers::One(dispatcher) => {
                    let server = &dispatcher.server;
                    server.send(&command, SendMode::Alone, deadline).await
                }
                Servers::Cluster { cluster, .. } => {
                    cluster.send_about(&key, &command, deadline).await
                }
            }
        };
        Box::pin(InRuntime::new(runtime, Box::pin(reply)))
    }

    fn read(&self, bytes: usize) -> StoreFuture<Vec<u8>> {
        let key = Arc::clone(&self.key);
        let text = self.send(Command::ReadText { key, bytes });
        let time = self.send(Command::Time);
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            let (text, time) = tokio::try_join!(text, time)?;
            let now_us = microseconds(&time);
            clock.set(now_us.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignReply))?);
            Ok(match text {
                Reply::Text(text) => text.into_bytes(),
                Reply::Bytes(bytes) => bytes,
                _ => Vec::new(),
            })
        })
    }
}

impl Source for InRedis {
    fn head(&self) -> StoreFuture<Vec<u8>> {
        self.read(HEAD_BYTES)
    }

    fn text(&self) -> StoreFuture<Vec<u8>> {
        self.read(MAX_BYTES + 1)
    }

    fn replace(&self, head: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool> {
        let key = Arc::clone(&self.key);
        let reply = self.send(Command::ReplaceText { key, head, text });
        Box::pin(async { Ok(reply.await? == Reply::Integer(1)) })
    }
}

/// Reads a reply to TIME: seconds and microseconds.
fn microseconds(reply: &Reply) -> Option<u64> {
    let Reply::Array(words) = reply else {
        return None;
    };
    let [Reply::Text(seconds), Reply::Text(microseconds)] = &words[..] else {
        return None;
    };
    let whole = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    whole.checked_add(microseconds.parse().ok()?)
}

/// The clock of the server that was asked last. It does not depend on the clock of a process.
#[derive(Debug, Default)]
struct ServerClock(Mutex<Option<(Instant, u64)>>);

impl ServerClock {
    fn set(&self, now_us: u64) {
        *lock(&self.0) = Some((Instant::now(), now_us));
    }
}

impl Clock for ServerClock {
    fn now_us(&self) -> u64 {
        // Without a reply no document is known, so no time matters.
        let (read_at, now_us) = lock(&self.0).unwrap_or((Instant::now(), 0));
        let since = u64::try_from(read_at.elapsed().as_micros());
        now_us.saturating_add(since.unwrap_or(u64::MAX))
    }
}

impl RedisStore {
    /// Returns the control document in this Redis, which all processes with the same
    /// [prefix](super::RedisStoreBuilder::prefix) share.
    ///
    /// From then on this process looks at it about once a second, while the [`Control`] or a
    /// layer or limiter with it is in use: by two small commands in one packet, and two more if it
    /// has changed. The user needs the rights `+getrange` and `+time`, and to make changes, or to
    /// store lost ones again, `+eval` and `+set`. Its key is `ttC{control}`.
    ///
    /// Entries begin and end by the clock of Redis, even if the store has a
    /// [`clock`](super::RedisStoreBuilder::clock) of its own.
    #[must_use]
    pub fn control(&self) -> Control {
        let mut held = lock(&self.store.control);
        let control = held.upgrade().unwrap_or_else(|| {
            let shared = &self.store.shared;
            let clock = Arc::<ServerClock>::default();
            let source = InRedis {
                store: Arc::clone(&self.store),
                key: shared.names.control_key().into(),
                clock: Arc::clone(&clock),
            };
            let new = Held::new(Box::new(source), clock, shared.names.secret);
            new.follow_in(&shared.runtime);
            *held = Arc::downgrade(&new);
            new
        });
        Control::new(control)
    }
}
