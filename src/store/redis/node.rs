//! One Redis server: its connections, and what is under way to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    call::{self, Deadline, Manner, Suspects},
    dispatch::Dispatch,
    key::KeyNames,
    question::{Question, Turns},
    reply::{self, Found, Parts},
    round_trip,
    script::{self, Arguments},
    server::{self, Reply},
    transport::{Route, Transport},
};
use crate::{
    Clock, StoreError, clock,
    error::StoreErrorKind,
    store::breaker::{Breaker, Ended, Pass},
    store::tasks::Tasks,
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
            breaker: Arc::new(Breaker::new(transport.hash())),
            transport,
        })
    }

    /// One more check in flight here. Refunds do not count: what was taken must
    /// get back in any flood, and takes no room from checks.
    pub(super) fn counted(self: &Arc<Self>, is_refund: bool) -> Result<Counted, StoreError> {
        let before = match is_refund {
            true => 0,
            false => self.in_flight.fetch_add(1, Ordering::Relaxed),
        };
        // Made first, so that its drop takes back what was just counted.
        let counted = Counted {
            node: Arc::clone(self),
            is_refund,
        };
        match before < self.most_in_flight {
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

    /// The longest that a check may take.
    pub(super) fn timeout(&self) -> Duration {
        self.asker.timeout
    }

    /// How a call ended. `server_us`: the time in its answer, which is the
    /// server's unless this store gives it.
    /// Returns what a call tells of the way to the server. `None` if nothing was sent, or
    /// if the answer was read after `deadline`: then this process was late, and not the
    /// server.
    pub(super) fn ended(
        &self,
        sent: Deadline,
        deadline: Deadline,
        error: Option<&StoreError>,
        server_us: Option<u64>,
    ) -> Option<round_trip::Ended> {
        let tells = match error {
            Some(error) => error.is_sent(),
            None => !deadline.is_over(Deadline::now()),
        };
        tells.then(|| round_trip::Ended {
            took: sent.elapsed(),
            is_answered: error.is_none(),
            server_us: server_us.filter(|_| self.asker.clock.is_none()),
        })
    }

    /// What goes on without its caller.
    pub(super) fn tasks(&self) -> &Tasks {
        &self.asker.tasks
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
        let is_refund = checks
            .iter()
            .all(|turns| turns.question.operation.is_refund_or_renewal());
        let route = self.transport.next()?;
        let pass = self.pass(is_refund)?;
        // Checks wait for one that finds out whether the server answers again.
        let deadline = match pass.is_probe() {
            true => deadline.earlier(Deadline::after(self.timeout())),
            false => deadline,
        };
        let reply = match route {
            Route::Link(connections, link) => {
                let script = script::for_checks(checks);
                let arguments = || Arguments::new(checks, names, nonce, now_us);
                server::script(connections, link, script, arguments, manner, deadline).await
            }
            #[cfg(feature = "testing")]
            Route::Simulated(redis) => redis.script(checks, names, (nonce, now_us), deadline).await,
        };
        let parts = reply.and_then(|integers| reply::read(&integers, nonce, checks));
        let ended = match &parts {
            // The server may be well: that counts for nothing.
            Err(error)
                if error.is_timeout()
                    && !is_refund
                    // While one finds out, no refund is sent.
                    && !pass.is_probe()
                    && self.is_crowded(deadline) =>
            {
                return Err(StoreError::new(StoreErrorKind::Crowded));
            }
            Ok(parts) if reply::refuses_all(parts) => Ended::Failed,
            parts => route.told(parts),
        };
        self.saw(route, pass, parts, ended)
    }

    /// Whether this process gave back so much that a check with this deadline may
    /// have been late behind it.
    pub(super) fn is_crowded(&self, deadline: Deadline) -> bool {
        let flooded_at = self.dispatch.state().flooded_at;
        // What was sent before may be in the way for as long as a call may take.
        let since = deadline.began(self.timeout().saturating_mul(2));
        flooded_at.is_some() && flooded_at >= since
    }

    /// What it means that a check which was sent got no answer in time.
    pub(super) fn late(&self, deadline: Deadline) -> StoreError {
        StoreError::new(match self.is_crowded(deadline) {
            true => StoreErrorKind::Crowded,
            false => StoreErrorKind::Timeout,
        })
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
        keys: Vec<String>,
        manner: Manner,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let route = self.transport.next()?;
        let pass = self.pass(false)?;
        let deleted = route.delete(keys, manner, deadline).await;
        let ended = route.told(&deleted);
        self.saw(route, pass, deleted, ended)
    }

    /// Which node of its cluster serves which slots, as it knows it. Who tells
    /// may still serve nobody, so this has no [pass](Self::pass).
    pub(super) async fn slots(&self, deadline: Deadline) -> Result<Reply, StoreError> {
        self.transport.next()?.slots(deadline).await
    }

    /// Leave to make a call about buckets.
    fn pass(&self, is_refund: bool) -> Result<Pass, StoreError> {
        let pass = self.breaker.pass(is_refund);
        pass.ok_or_else(StoreError::left_alone)
    }

    /// Learns how each such call ended.
    fn saw<T>(
        &self,
        route: Route<'_>,
        pass: Pass,
        result: Result<T, StoreError>,
        ended: Ended,
    ) -> Result<T, StoreError> {
        let is_refund = pass.is_refund();
        let pause = pass.ended(ended);
        if result.as_ref().is_err_and(StoreError::is_overloaded) {
            return result.map_err(|_| self.not_sent());
        }
        let error = result.as_ref().err();
        let suspects = match error {
            Some(error) => call::suspects(error, pause),
            None if ended == Ended::Failed && pause >= call::PATIENCE => Suspects::All,
            None => Suspects::None,
        };
        match suspects {
            Suspects::None => {}
            Suspects::ThisOne => route.renew(),
            Suspects::All => self.transport.renew(),
        }
        let is_failing = error.is_some_and(StoreError::is_no_answer);
        if !is_refund {
            self.is_failing.store(is_failing, Ordering::Relaxed);
        }
        if !is_failing {
            self.answers.fetch_add(1, Ordering::Relaxed);
        } else if error.is_some_and(StoreError::is_unavailable) {
            self.dispatch.state().round_trip.forget();
        }
        result
    }
}

/// What all nodes ask with.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) names: KeyNames,
    /// The longest that a check may take.
    timeout: Duration,
    nonce: AtomicI64,
    clock: Option<Arc<dyn Clock>>,
    /// What goes on without its caller.
    tasks: Tasks,
}

impl Asker {
    pub(super) fn new(
        names: KeyNames,
        timeout: Duration,
        first_nonce: i64,
        clock: Option<Arc<dyn Clock>>,
        tasks: Tasks,
    ) -> Arc<Self> {
        Arc::new(Self {
            names,
            timeout,
            nonce: AtomicI64::new(first_nonce),
            clock,
            tasks,
        })
    }

    /// Positive, and exact as a Lua number.
    fn next_nonce(&self) -> i64 {
        self.nonce.fetch_add(1, Ordering::Relaxed) & ((1 << 52) - 1)
    }
}

/// One check or refund in flight.
#[derive(Debug)]
pub(super) struct Counted {
    node: Arc<Node>,
    is_refund: bool,
}

impl Counted {
    /// Where it is in flight.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_refund {
            self.node.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
