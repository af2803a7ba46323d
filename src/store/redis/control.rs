//! The control document in Redis: one string under one key.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    RedisStore, SendMode,
    deadline::Deadline,
    document::{ServerClock, TextCommand, TextReply},
    unleased::{Servers, Unleased},
};
use crate::{
    StoreError,
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
    fn send(&self, command: TextCommand) -> StoreFuture<TextReply> {
        let (store, key) = (Arc::clone(&self.store), Arc::clone(&self.key));
        let runtime = store.shared.runtime.clone();
        let reply = async move {
            let deadline = Deadline::after(store.shared.timeout.max(TIMEOUT));
            match store.servers()? {
                Servers::One(dispatcher) => {
                    let server = dispatcher.server();
                    server.text(&key, command, SendMode::Alone, deadline).await
                }
                Servers::Cluster(cluster) => cluster.text(&key, &command, deadline).await,
            }
        };
        Box::pin(InRuntime::new(runtime, Box::pin(reply)))
    }

    fn read(&self, bytes: usize) -> StoreFuture<Vec<u8>> {
        let reply = self.send(TextCommand::Read { bytes });
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            match reply.await? {
                TextReply::Text { text, now_us } => {
                    clock.set(now_us);
                    Ok(text)
                }
                TextReply::Replaced(_) => Err(StoreError::new(StoreErrorKind::ForeignReply)),
            }
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
        let reply = self.send(TextCommand::Replace { head, text });
        Box::pin(async {
            match reply.await? {
                TextReply::Replaced(is_replaced) => Ok(is_replaced),
                TextReply::Text { .. } => Err(StoreError::new(StoreErrorKind::ForeignReply)),
            }
        })
    }
}

impl fmt::Debug for InRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InRedis").field(&self.key).finish()
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
            let new = Held::new(Box::new(source), clock, shared.names.secret());
            new.follow_in(&shared.runtime);
            *held = Arc::downgrade(&new);
            new
        });
        Control::new(control)
    }
}
