//! Workers take what waits, and send it in one call after another.
//!
//! They are tasks of their own, so a caller that leaves, or does not poll its check, delays
//! no other.
//!
//! In a cluster, a call may only hold keys of one slot. A worker then sends the checks that it
//! takes in several calls at once, and waits for all of them.

use std::{
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, MutexGuard},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    Dispatcher, Queue, State,
    job::{Answered, Job, answer},
};
use crate::{
    StoreError,
    charge::Operation,
    store::redis::{
        SendMode, deadline::Deadline, reply::ScriptReply, request::Repeated, server::Server,
    },
};

/// Checks in one call, at most, unless a single one has more shadows. At 3 us of Redis each, they
/// keep other clients waiting for less than half a millisecond.
const MAX_CHECKS: usize = 128;
/// Refunds in one call, at most: half as many, so no check waits long behind them at the
/// server.
pub(super) const MAX_REFUNDS: usize = MAX_CHECKS / 2;
/// Fewer checks in one call cost Redis and the network more for each.
pub(super) const MIN_CHECKS: usize = 16;
/// A refund is kept and sent for this long after its deadline, so that units get back in
/// any flood.
const REFUND_TIME: Duration = Duration::from_secs(1);

/// Serves a queue until it is empty.
pub(super) struct Worker {
    dispatcher: Arc<Dispatcher>,
    of_refunds: bool,
    /// Whether no other worker may start by its pace until this one has taken checks.
    is_paced: bool,
    has_ended: bool,
}

impl Worker {
    pub(super) const fn of_checks(dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            dispatcher,
            of_refunds: false,
            is_paced: false,
            has_ended: false,
        }
    }

    pub(super) const fn of_refunds(dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            dispatcher,
            of_refunds: true,
            is_paced: false,
            has_ended: false,
        }
    }

    /// `pause`: how long to wait before the first call.
    pub(super) async fn run(mut self, pause: Duration) {
        // A sleep of no time takes a millisecond.
        if !pause.is_zero() {
            self.is_paced = true;
            sleep(pause).await;
        }
        loop {
            // Checks whose callers were woken together are sent together.
            yield_to_ready_tasks().await;
            let Some(jobs) = self.take() else { break };
            self.send(jobs).await;
            if self.of_refunds && !self.dispatcher.share_refunds() {
                self.has_ended = true;
                break;
            }
        }
    }

    async fn send(&self, jobs: Vec<Job>) {
        let mut slots = jobs.iter().map(|job| job.request.slot);
        let first = slots.next();
        if slots.all(|slot| Some(slot) == first) {
            return send_batch(self.dispatcher.server(), jobs).await;
        }
        let mut batches: Vec<(u16, Vec<Job>)> = Vec::new();
        for job in jobs {
            let slot = job.request.slot;
            match batches.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, batch)) => batch.push(job),
                None => batches.push((slot, vec![job])),
            }
        }
        let mut calls = JoinSet::new();
        for (_, batch) in batches {
            let dispatcher = Arc::clone(&self.dispatcher);
            calls.spawn(async move { send_batch(dispatcher.server(), batch).await });
        }
        while calls.join_next().await.is_some() {}
    }

    /// Takes what waits. Drops checks whose caller left or whose time is over: they are never sent, and
    /// take no units. Returns `None` if nothing waits: then the worker has ended.
    fn take(&mut self) -> Option<Vec<Job>> {
        let server = self.dispatcher.server();
        let now = Instant::now();
        let reply_at = now + server.latency().expected();
        let mut state = self.dispatcher.state();
        if mem::take(&mut self.is_paced) {
            state.is_paced = false;
        }
        let most = match self.of_refunds {
            true => MAX_REFUNDS,
            false => self
                .dispatcher
                .share_of_one(&state)
                .clamp(MIN_CHECKS, MAX_CHECKS),
        };
        let queue = self.queue(&mut state);
        let mut jobs: Vec<Job> = Vec::with_capacity(most.min(queue.jobs.len()));
        let mut checks = 0;
        let (mut expiring, mut dropped) = (Vec::new(), Vec::new());
        while jobs.len() < most {
            let has_room = |job: &Job| checks == 0 || checks + job.request.checks() <= MAX_CHECKS;
            if !queue.jobs.front().is_some_and(has_room) {
                break;
            }
            let Some(job) = queue.jobs.pop_front() else {
                break;
            };
            let deadline = job.deadline;
            if self.of_refunds {
                // Refunds are sent whether their callers wait or not.
                let is_kept = !deadline.postponed(REFUND_TIME).has_passed(now);
                checks += if is_kept { job.request.checks() } else { 0 };
                if is_kept { &mut jobs } else { &mut dropped }.push(job);
            } else if job.has_left() || deadline.has_passed(now) {
                dropped.push(job);
            } else if deadline.has_passed(reply_at) {
                expiring.push(job);
            } else {
                checks += job.request.checks();
                jobs.push(job);
            }
        }
        // The reply would come too late for these. They are sent only if no other check waits:
        // in an overload, all calls would be charged and none answered in time.
        if jobs.is_empty() {
            let latest = expiring.iter().rev().take(most).take_while(|job| {
                let before = checks;
                checks += job.request.checks();
                before == 0 || checks <= MAX_CHECKS
            });
            let sent = latest.count();
            jobs = expiring.split_off(expiring.len() - sent);
        }
        dropped.append(&mut expiring);
        let is_empty = queue.jobs.is_empty();
        if jobs.is_empty() {
            queue.workers -= 1;
            self.has_ended = true;
        } else if !self.of_refunds {
            state.taken_at = now;
        }
        drop(state);
        if self.of_refunds && !jobs.is_empty() && !is_empty {
            server.record_flood();
        }
        for job in dropped {
            job.answer_too_late(server);
        }
        (!jobs.is_empty()).then_some(jobs)
    }

    fn queue<'s>(&self, state: &'s mut MutexGuard<'_, State>) -> &'s mut Queue {
        match self.of_refunds {
            true => &mut state.refunds,
            false => &mut state.checks,
        }
    }
}

impl Drop for Worker {
    /// A worker that is dropped before it ends has lost its runtime, so no worker will serve the
    /// queue.
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.dispatcher.state();
        if self.is_paced {
            state.is_paced = false;
        }
        let queue = self.queue(&mut state);
        queue.workers -= 1;
        let jobs = mem::take(&mut queue.jobs);
        drop(state);
        drop(jobs);
    }
}

/// Lets those tasks run that are ready now. Tokio's own `yield_now` also lets tasks run
/// that become ready meanwhile, up to a bound.
async fn yield_to_ready_tasks() {
    let mut has_yielded = false;
    let yielded = poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    yielded.await;
}

/// Sends checks of one slot in one call, and answers all callers, whatever the outcome.
async fn send_batch(server: &Server, mut jobs: Vec<Job>) {
    let mut senders: Vec<_> = jobs.iter_mut().map(|job| job.answer.take()).collect();
    let reply = {
        // Equal checks in a row are sent as one.
        let mut checks: Vec<Repeated<'_>> = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let last = checks.last_mut();
            if !last.is_some_and(|last| last.merge(&job.request)) {
                checks.push(Repeated::once(&job.request));
            }
        }
        call(server, &checks, &jobs, &mut senders).await
    };
    match reply {
        Ok(results) => {
            for (sender, result) in senders.into_iter().zip(results) {
                answer(sender, result);
            }
        }
        Err(error) => {
            for sender in senders {
                answer(sender, Err(error.clone()));
            }
        }
    }
}

/// Makes the call, and answers those callers whose time is over before it ends.
async fn call(
    server: &Server,
    checks: &[Repeated<'_>],
    jobs: &[Job],
    senders: &mut [Option<oneshot::Sender<Answered>>],
) -> Result<ScriptReply, StoreError> {
    if jobs.iter().any(|job| job.request.is_refund()) {
        // A settlement ends with its call. The callers of others have timers of their own.
        let settled = jobs.iter();
        let settled = settled.filter(|job| job.request.operation == Operation::Settle);
        let least = Deadline::after(server.timeout().saturating_mul(2));
        let deadline = settled.map(|job| job.deadline).fold(least, Deadline::later);
        let call = server.eval(checks, SendMode::Batched, deadline);
        return call.await;
    }
    let deadlines = jobs.iter().map(|job| job.deadline);
    let last = deadlines.fold(Deadline::after(Duration::ZERO), Deadline::later);
    let mut call = pin!(server.eval(checks, SendMode::Batched, last));
    loop {
        let waiting = jobs.iter().zip(&*senders);
        let waiting = waiting.filter(|(_, sender)| sender.is_some());
        // The other deadlines are kept by the call's own.
        let early = waiting.map(|(job, _)| job.deadline);
        let early = early.filter(|deadline| deadline.is_before(last));
        let Some(next) = early.reduce(Deadline::earlier) else {
            return call.await;
        };
        if let Ok(reply) = timeout(next.remaining(), call.as_mut()).await {
            return reply;
        }
        for (job, sender) in jobs.iter().zip(&mut *senders) {
            if !next.is_before(job.deadline) {
                answer(sender.take(), Err(server.unanswered(job.deadline)));
            }
        }
    }
}
