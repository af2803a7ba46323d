//! One Redis server: its connections, and what is under way to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fred::types::Value;
use tokio::runtime::Handle;

use super::{
    call::{self, Deadline, Manner, Suspects},
    dispatch::Dispatch,
    key::KeyNames,
    question::{Question, Turns},
    reply::{self, Found, Parts},
    script::{self, Arguments},
    transport::{Route, Transport},
};
use crate::{
    Clock, StoreError, clock,
    error::StoreErrorKind,
    store::breaker::{Breaker, Ended, Pass},
};

#[derive(Debug)]
pub(super) struct Node {
    transport: Transport,
    pub(super) dispatch: Dispatch,
    in_flight: AtomicUsize,
    most_in_flight: usize,
    asker: Arc<Asker>,
    /// The last call that ended got no answer.
    is_failing: AtomicBool,
    /// Calls that got an answer.
    answers: AtomicU64,
    /// How long the last call took, the last that got one, and the one that got
    /// it first of all: nothing was in its way.
    took_us: AtomicU64,
    answered_in_us: AtomicU64,
    least_us: AtomicU64,
    breaker: Arc<Breaker>,
}

impl Node {
    pub(super) fn new(
        runtime: Handle,
        transport: impl Into<Transport>,
        most_in_flight: usize,
        asker: Arc<Asker>,
    ) -> Arc<Self> {
        let transport = transport.into();
        Arc::new(Self {
            dispatch: Dispatch::new(runtime, transport.connections()),
            in_flight: AtomicUsize::new(0),
            most_in_flight,
            asker,
            is_failing: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            took_us: AtomicU64::new(u64::MAX),
            answered_in_us: AtomicU64::new(0),
            least_us: AtomicU64::new(u64::MAX),
            breaker: Arc::new(Breaker::new(transport.hash())),
            transport,
        })
    }

    /// One more check in flight here. What was taken was counted already, and
    /// must get back in any flood.
    pub(super) fn counted(self: &Arc<Self>, is_back: bool) -> Result<Counted, StoreError> {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        // Made first, so that its drop takes back what was just counted.
        let counted = Counted(Arc::clone(self));
        match is_back || before < self.most_in_flight {
            true => Ok(counted),
            false => Err(self.not_sent()),
        }
    }

    /// What it means that there is no room or time for a check: a flood, or a
    /// server that answers nobody.
    fn not_sent(&self) -> StoreError {
        StoreError::new(if self.is_failing() {
            StoreErrorKind::NotSent
        } else {
            StoreErrorKind::Overloaded
        })
    }

    /// Says that an error is of this server.
    pub(super) fn named(&self, error: StoreError) -> StoreError {
        error.at(self.transport.server())
    }

    /// How many checks are not decided yet.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn answered_in(&self) -> Duration {
        Duration::from_micros(self.answered_in_us.load(Ordering::Relaxed))
    }

    pub(super) fn took(&self, time: Duration, is_answered: bool) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.took_us.store(time_us, Ordering::Relaxed);
        if is_answered {
            self.answered_in_us.store(time_us, Ordering::Relaxed);
            self.least_us.fetch_min(time_us, Ordering::Relaxed);
        }
    }

    /// Whether the last call took so little that so many in a row are in time.
    pub(super) fn has_time_for(&self, calls: usize, deadline: Deadline) -> bool {
        let took_us = self.took_us.load(Ordering::Relaxed);
        let in_a_row_us = u128::from(took_us) * calls as u128;
        in_a_row_us <= deadline.left().as_micros()
    }

    /// Whether calls take so long that a few such ones in a row are too late, and
    /// that is because of too many, not of the way there.
    pub(super) fn is_slow_for(&self, deadline: Deadline) -> bool {
        let took_us = self.took_us.load(Ordering::Relaxed);
        let least_us = self.least_us.load(Ordering::Relaxed);
        took_us / 2 > least_us && !self.has_time_for(4, deadline)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Decides on these checks in one call.
    pub(super) async fn call(
        &self,
        checks: &[Turns<'_>],
        manner: Manner,
        deadline: Deadline,
    ) -> Result<Parts, StoreError> {
        let Asker { names, clock, .. } = &*self.asker;
        let nonce = self.asker.next_nonce();
        let now_us = clock.as_deref().map_or(0, clock::read);
        let route = self.transport.next()?;
        let pass = self.pass()?;
        let reply = match route {
            Route::Link(connections, link) => {
                let script = script::for_checks(checks);
                let arguments = || Arguments::new(checks, names, nonce, now_us);
                call::script(connections, link, script, arguments, manner, deadline).await
            }
            #[cfg(feature = "testing")]
            Route::Simulated(redis) => redis.script(checks, names, (nonce, now_us), deadline).await,
        };
        let parts = reply.and_then(|integers| reply::read(&integers, nonce, checks));
        let is_refused = parts.as_ref().is_ok_and(|parts| reply::refuses_all(parts));
        self.saw(route, pass, parts, is_refused)
    }

    /// Decides on a check in a call of its own, whatever else is under way.
    pub(super) async fn call_for_one(
        &self,
        question: &Question,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<Found, StoreError> {
        let checks = [Turns { question, times: 1 }];
        let mut parts = self.call(&checks, manner, deadline).await?;
        // There is one for each check.
        let no_part = || StoreError::new(StoreErrorKind::ForeignReply);
        parts.pop().ok_or_else(no_part)?.found
    }

    /// Deletes keys, those that are there.
    pub(super) async fn delete(
        &self,
        keys: Vec<Value>,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let route = self.transport.next()?;
        let pass = self.pass()?;
        let deleted = route.delete(keys, manner, deadline).await;
        self.saw(route, pass, deleted, false)
    }

    /// Which node of its cluster serves which slots, as it knows it. Who tells
    /// may still serve nobody, so this has no [pass](Self::pass).
    pub(super) async fn slots(&self, deadline: Deadline) -> Result<Value, StoreError> {
        self.transport.next()?.slots(deadline).await
    }

    /// Leave to make a call about buckets.
    fn pass(&self) -> Result<Pass, StoreError> {
        self.breaker.pass().ok_or_else(StoreError::left_alone)
    }

    /// How each such call ended. `is_refused`: what was asked for was refused
    /// inside the script.
    fn saw<T>(
        &self,
        route: Route<'_>,
        pass: Pass,
        result: Result<T, StoreError>,
        is_refused: bool,
    ) -> Result<T, StoreError> {
        let ended = if is_refused {
            Ended::Failed
        } else {
            route.told(&result)
        };
        let pause = pass.ended(ended);
        if result.as_ref().is_err_and(StoreError::is_overloaded) {
            return result.map_err(|_| self.not_sent());
        }
        let error = result.as_ref().err();
        let suspects = match error {
            Some(error) => call::suspects(error, pause),
            None if is_refused && pause >= call::PATIENCE => Suspects::All,
            None => Suspects::None,
        };
        match suspects {
            Suspects::None => {}
            Suspects::ThisOne => route.renew(),
            Suspects::All => self.transport.renew(),
        }
        let is_failing = error.is_some_and(StoreError::is_no_answer);
        self.is_failing.store(is_failing, Ordering::Relaxed);
        if !is_failing {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

/// What all nodes ask with.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) names: KeyNames,
    nonce: AtomicI64,
    clock: Option<Arc<dyn Clock>>,
}

impl Asker {
    pub(super) fn new(
        names: KeyNames,
        first_nonce: i64,
        clock: Option<Arc<dyn Clock>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            names,
            nonce: AtomicI64::new(first_nonce),
            clock,
        })
    }

    /// Positive, and exact as a Lua number.
    fn next_nonce(&self) -> i64 {
        self.nonce.fetch_add(1, Ordering::Relaxed) & ((1 << 52) - 1)
    }
}

/// One check in flight.
#[derive(Debug)]
pub(super) struct Counted(Arc<Node>);

impl Counted {
    /// Where it is in flight.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
