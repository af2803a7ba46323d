//! One Redis server: whether it is asked, how long it takes, and how calls to it end.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    SendMode,
    client_reply::{RedisError, Reply},
    connection::Command,
    latency::Latency,
    pool::{Pool, Wire},
    reply::{self, CheckResult, ScriptReply},
    request::{Repeated, ScriptCall, ScriptRequest},
    shared::Shared,
};
use crate::{
    StoreError, clock,
    error::StoreErrorKind,
    store::breaker::{Breaker, CallOutcome},
    util::lock::lock,
};

/// Calls in flight on each connection, and one more: so that Redis has work while one
/// reply is on its way and another is read here.
const CALLS_PER_CONNECTION: usize = 3;
/// The breaker must be open for this long before connections are replaced: shorter pauses
/// tell too little.
const REPLACE_AFTER: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct Server {
    pool: Pool,
    pub(super) shared: Arc<Shared>,
    breaker: Arc<Breaker>,
    latency: Mutex<Latency>,
    /// Has a clone for each script call under way that is no refund.
    calls: Arc<()>,
    /// Whether the last call got no answer.
    is_failing: AtomicBool,
    /// Calls that got an answer.
    answers: AtomicU64,
    /// Whether it refused a command that writes, and has not written since.
    refuses_writes: AtomicBool,
}

impl Server {
    pub(super) fn new(pool: Pool, shared: Arc<Shared>) -> Self {
        let latency = Latency::new(CALLS_PER_CONNECTION * pool.len());
        Self {
            pool,
            breaker: Arc::new(Breaker::new(shared.random)),
            shared,
            latency: Mutex::new(latency),
            calls: Arc::default(),
            is_failing: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            refuses_writes: AtomicBool::new(false),
        }
    }

    /// Returns how many calls at a time keep the server busy without a queue.
    pub(super) fn useful_calls(&self) -> usize {
        CALLS_PER_CONNECTION * self.pool.len()
    }

    /// Adds the server's name to an error.
    pub(super) fn with_server(&self, error: StoreError) -> StoreError {
        error.at(&self.pool.server)
    }

    /// Returns whether the pool has an open connection.
    pub(super) fn is_connected(&self) -> bool {
        self.pool.is_connected()
    }

    /// Returns whether the circuit breaker is open.
    pub(super) fn is_breaker_open(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(super) fn latency(&self) -> MutexGuard<'_, Latency> {
        lock(&self.latency)
    }

    /// Decides these checks in one call.
    pub(super) async fn eval(
        &self,
        checks: &[Repeated<'_>],
        mode: SendMode,
        deadline: Instant,
    ) -> Result<ScriptReply, StoreError> {
        let call = ScriptCall {
            checks,
            names: &self.shared.names,
            nonce: self.shared.next_nonce(),
            now_us: self.shared.clock.as_deref().map_or(0, clock::read),
            writes: self.refuses_writes.load(Ordering::Relaxed),
        };
        let is_refund = checks.iter().all(|check| check.request.is_refund());
        let wire = self.pool.next();
        let permit = self.breaker.try_acquire(is_refund)?;
        // Checks wait for the outcome of a probe.
        let until = match permit.is_probe {
            true => deadline.min(Instant::now() + self.shared.timeout),
            false => deadline,
        };
        let sent_at = Instant::now();
        let _under_way = (!is_refund).then(|| Arc::clone(&self.calls));
        let reply = async {
            let connection = wire.connection(until).await?;
            let loaded_at = &self.pool.loaded_at;
            let integers = connection.eval(loaded_at, &call, mode, until).await?;
            reply::decode(&integers, &call)
        };
        let reply = reply.await;
        if reply.as_ref().err().is_none_or(StoreError::is_sent) {
            let took = sent_at.elapsed();
            let times = checks.iter();
            let times = times.map(|check| check.times * check.request.checks() as u64);
            self.shared.call_seconds.record_duration(took);
            self.shared.checks_per_call.record(times.sum());
            if !is_refund {
                self.record_latency(&reply, took, deadline);
            }
        }
        if let Ok(results) = &reply {
            self.record_writes(&call, results);
        }
        let (outcome, cause) = match &reply {
            // The server may be well, so this does not count. While a probe is under way, no refund
            // is sent.
            Err(error)
                if error.is_timeout()
                    && !is_refund
                    && !permit.is_probe
                    && self.is_crowded(until) =>
            {
                return Err(StoreError::new(StoreErrorKind::Crowded));
            }
            Ok(results) if reply::is_refused(results) => {
                let refusal = results.iter().find_map(|result| result.as_ref().err());
                (CallOutcome::Failed, refusal)
            }
            reply => {
                let outcome = CallOutcome::of_server(reply, wire.is_connected());
                (outcome, reply.as_ref().err())
            }
        };
        let pause = permit.record_outcome(outcome, cause);
        self.finish(wire, pause, is_refund, reply, outcome)
    }

    /// Records whether the server refused to write. Then checks of penalties write, although they need
    /// only read, until one of them has written: strikes that cannot be stored must not go unnoticed.
    fn record_writes(&self, call: &ScriptCall<'_>, results: &ScriptReply) {
        let mut results_of = results.iter();
        if results_of.any(|result| result.as_ref().is_err_and(StoreError::is_refused)) {
            self.refuses_writes.store(true, Ordering::Relaxed);
        } else if reply::has_written(call, results) {
            self.refuses_writes.store(false, Ordering::Relaxed);
        }
    }

    /// Records how long a call took that was sent.
    fn record_latency(
        &self,
        reply: &Result<ScriptReply, StoreError>,
        took: Duration,
        deadline: Instant,
    ) {
        let mut latency = self.latency();
        match reply {
            Err(_) => latency.record_silence(took, self.shared.timeout),
            // If the reply was read after the deadline, this process was late, and not the server.
            Ok(_) if deadline <= Instant::now() => {}
            Ok(results) => {
                // A store with its own clock sends the time that the reply repeats.
                let found = results.iter().flatten().next();
                let found = found.filter(|_| self.shared.clock.is_none());
                let calls = Arc::strong_count(&self.calls) - 1;
                let server_us = found.map(|found| found.now_us);
                latency.record_reply(took, server_us, calls, self.shared.timeout);
            }
        }
    }

    /// Decides one check in a call of its own.
    #[expect(clippy::expect_used, reason = "a reply has a result for each check")]
    pub(super) async fn eval_alone(
        &self,
        request: &ScriptRequest,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<CheckResult, StoreError> {
        let reply = self.eval(&[Repeated::once(request)], mode, deadline).await;
        reply?.pop().expect("a result for each check")
    }

    pub(super) async fn send(
        &self,
        command: &Command,
        mode: SendMode,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let wire = self.pool.next();
        let permit = match command.is_of_buckets() {
            true => Some(self.breaker.try_acquire(false)?),
            false => None,
        };
        let reply = async {
            let connection = wire.connection(deadline).await?;
            connection.send(command, mode, deadline).await
        };
        let mut reply = reply.await;
        if let Some(permit) = permit {
            let outcome = CallOutcome::of_server(&reply, wire.is_connected());
            let pause = permit.record_outcome(outcome, reply.as_ref().err());
            reply = self.finish(wire, pause, false, reply, outcome);
        } else if reply.as_ref().is_err_and(StoreError::is_foreign_reply) {
            // A connection whose replies are out of step stays so.
            wire.replace();
        }
        reply.map_err(|error| self.with_server(error))
    }

    /// Records how a call ended. `pause`: how long the breaker stays open.
    fn finish<T>(
        &self,
        wire: &Wire,
        pause: Duration,
        is_refund: bool,
        result: Result<T, StoreError>,
        outcome: CallOutcome,
    ) -> Result<T, StoreError> {
        let error = result.as_ref().err();
        if error.is_some_and(StoreError::is_overloaded) {
            return result.map_err(|_| self.has_no_room());
        }
        if error.is_some_and(StoreError::is_foreign_reply) {
            // A connection whose replies are out of step stays so.
            wire.replace();
        } else if pause >= REPLACE_AFTER
            && error.map_or(outcome == CallOutcome::Failed, is_elsewhere)
        {
            self.pool.replace_all();
        }
        let is_failing = error.is_some_and(StoreError::is_no_answer);
        if !is_refund {
            self.is_failing.store(is_failing, Ordering::Relaxed);
        }
        if !is_failing {
            self.answers.fetch_add(1, Ordering::Relaxed);
        } else if error.is_some_and(StoreError::is_unavailable) {
            self.latency().forget();
        }
        result
    }

    /// Returns the error of a check without room or time: too much load, or a server that does not
    /// answer.
    pub(super) fn has_no_room(&self) -> StoreError {
        StoreError::new(match self.is_failing() {
            true => StoreErrorKind::NotSent,
            false => StoreErrorKind::Overloaded,
        })
    }

    /// Returns the error of a check whose turn did not come in time. It is overload if other
    /// checks were answered since this one came, and the server did not stall meanwhile.
    pub(super) fn too_late(&self, deadline: Instant, answers_before: u64) -> StoreError {
        let stalled_at = self.latency().stalled_at;
        let has_stalled =
            stalled_at.is_some() && stalled_at >= deadline.checked_sub(self.shared.timeout);
        let is_silent = has_stalled || self.answers() == answers_before;
        if is_silent && !self.is_crowded(deadline) {
            StoreError::not_sent("no answer to the calls before it")
        } else {
            StoreError::new(StoreErrorKind::Overloaded)
        }
    }

    /// Returns the error of a check that was sent and got no answer in time.
    pub(super) fn unanswered(&self, deadline: Instant) -> StoreError {
        StoreError::new(match self.is_crowded(deadline) {
            true => StoreErrorKind::Crowded,
            false => StoreErrorKind::Timeout,
        })
    }

    /// Records that more refunds wait than one call takes.
    pub(super) fn record_flood(&self) {
        self.latency().flooded_at = Some(Instant::now());
    }

    /// Whether a check with this deadline may be late because of many refunds.
    fn is_crowded(&self, deadline: Instant) -> bool {
        let flooded_at = self.latency().flooded_at;
        // A call that was sent before may be in the way for as long as a call may take.
        flooded_at.is_some() && flooded_at >= deadline.checked_sub(2 * self.shared.timeout)
    }
}

/// Whether another connection may reach a server that answers: after a failover, an
/// address may be that of a replica, or of no server.
fn is_elsewhere(error: &StoreError) -> bool {
    let word = RedisError::of(error).and_then(RedisError::word);
    error.is_timeout() || matches!(word, Some("READONLY" | "MASTERDOWN"))
}
