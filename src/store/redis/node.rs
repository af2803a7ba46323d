//! One Redis server: its connections, and what is under way to it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use fred::types::Value;
use tokio::runtime::Handle;

use super::{
    call::{self, Deadline, Manner},
    connection::Connections,
    dispatch::Dispatch,
    script::{self, Encoded, Found, Reply},
};
use crate::{
    Clock, StoreError, clock,
    error::StoreErrorKind,
    store::breaker::{Breaker, Ended},
};

#[derive(Debug)]
pub(super) struct Node {
    connections: Connections,
    pub(super) dispatch: Dispatch,
    room: Arc<Room>,
    asker: Arc<Asker>,
    /// The last call that ended got no answer.
    is_failing: AtomicBool,
    breaker: Arc<Breaker>,
}

impl Node {
    pub(super) fn new(
        runtime: Handle,
        connections: Connections,
        most_in_flight: usize,
        asker: Arc<Asker>,
    ) -> Arc<Self> {
        Arc::new(Self {
            dispatch: Dispatch::new(runtime, connections.len()),
            connections,
            room: Room::for_at_most(most_in_flight),
            asker,
            is_failing: AtomicBool::new(false),
            breaker: Arc::new(Breaker::new()),
        })
    }

    /// One more check in flight here. What was taken was counted already, and
    /// must get back in any flood.
    pub(super) fn counted(&self, is_back: bool) -> Result<Counted, StoreError> {
        Counted::one_more(&self.room, is_back).ok_or_else(|| self.not_sent())
    }

    /// What it means that there is no room, or no time, for a check that was not
    /// sent: a flood, or a server that answers nobody.
    pub(super) fn not_sent(&self) -> StoreError {
        StoreError::new(if self.is_failing() {
            StoreErrorKind::Unavailable
        } else {
            StoreErrorKind::Overloaded
        })
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Decides on these checks in one call.
    pub(super) async fn call(
        &self,
        checks: Vec<Encoded>,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        let nonce = self.asker.next_nonce();
        let now_us = self.asker.clock.as_deref().map_or(0, clock::read);
        let integers = checks.iter().map(|check| check.shape.integers()).sum();
        let script = script::for_checks(&checks);
        let arguments = script::arguments(checks, nonce, now_us);
        let call = call::script(&self.connections, script, arguments, manner, deadline);
        self.seen(async { Reply::new(call.await?, nonce, integers) })
            .await
    }

    /// Decides on a check in a call of its own, whatever else is under way.
    pub(super) async fn call_for_one(
        &self,
        check: Encoded,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<Found, StoreError> {
        let shape = check.shape.clone();
        let mut reply = self.call(vec![check], manner, deadline).await?;
        reply.found(&shape)
    }

    /// Deletes keys, those that are there.
    pub(super) async fn delete(
        &self,
        keys: Vec<Value>,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let call = call::delete(&self.connections, keys, manner, deadline);
        self.seen(call).await
    }

    /// Which node of its cluster serves which slots, as it knows it. Who tells
    /// may still serve nobody, so this is not [seen](Self::seen).
    pub(super) async fn slots(&self, deadline: Deadline) -> Result<Value, StoreError> {
        call::slots(&self.connections, deadline).await
    }

    /// Every call about buckets passes here, and how it ended is seen.
    async fn seen<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(pass) = self.breaker.pass() else {
            return Err(StoreError::new(StoreErrorKind::Unavailable));
        };
        let result = call.await;
        let pause = pass.ended(Ended::of(&result));
        if let Err(error) = &result {
            if call::asks_for_another_connection(error, pause) {
                self.connections.renew(self.dispatch.runtime());
            }
        }
        let is_failing = result.as_ref().is_err_and(StoreError::is_no_answer);
        self.is_failing.store(is_failing, Ordering::Relaxed);
        result
    }
}

/// What all nodes ask with.
#[derive(Debug)]
pub(super) struct Asker {
    nonce: AtomicI64,
    clock: Option<Arc<dyn Clock>>,
}

impl Asker {
    pub(super) fn new(first_nonce: i64, clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        Arc::new(Self {
            nonce: AtomicI64::new(first_nonce),
            clock,
        })
    }

    /// Positive, and exact as a Lua number.
    fn next_nonce(&self) -> i64 {
        self.nonce.fetch_add(1, Ordering::Relaxed) & ((1 << 52) - 1)
    }
}

/// For so many at a time.
#[derive(Debug)]
pub(super) struct Room {
    in_flight: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn for_at_most(most: usize) -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicUsize::new(0),
            most,
        })
    }
}

/// One check in flight.
#[derive(Debug)]
pub(super) struct Counted(Arc<Room>);

impl Counted {
    pub(super) fn one_more(room: &Arc<Room>, is_welcome: bool) -> Option<Self> {
        let before = room.in_flight.fetch_add(1, Ordering::Relaxed);
        // Made first, so that its drop takes back what was just counted.
        let counted = Self(Arc::clone(room));
        (is_welcome || before < room.most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
