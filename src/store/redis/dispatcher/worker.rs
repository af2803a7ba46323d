//! Workers take what waits, and send it in one call after another.
//!
//! They are tasks of their own, so a caller that leaves, or does not poll its check, delays
//! no other.
//!
//! In a cluster, a call may only hold keys of one slot. A worker then sends the checks that it
//! takes in several calls at once, and waits for all of them.

use std::{future::poll_fn, mem, pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Dispatcher, Job};
use crate::{
    charge::Operation,
    store::redis::{SendMode, request::Repeated, server::Server},
};

/// Checks in one call, at most, unless a single one has more shadows. Other clients of the server
/// wait while it runs.
const MAX_CHECKS: usize = 128;
/// Refunds in one call, at most: half as many, so no check waits long behind them at the
/// server.
pub(super) const MAX_REFUNDS: usize = MAX_CHECKS / 2;
/// Fewer checks in one call cost Redis and the network more for each.
pub(super) const MIN_CHECKS: usize = 16;
/// A refund is kept and sent for this long after its deadline, so that units get back in
/// any flood.
const REFUND_TIME: Duration = Duration::from_secs(1);

/// After this time without a reply to refunds, another worker sends those that came meanwhile.
const SILENCE: Duration = Duration::from_millis(200);

/// Serves a queue until it is empty.
pub(super) struct Worker {
    dispatcher: Arc<Dispatcher>,
    of_refunds: bool,
    /// Whether no other worker may start by its pace until this one has taken checks.
    is_paced: bool,
    has_ended: bool,
}

impl Worker {
    pub(super) const fn new(dispatcher: Arc<Dispatcher>, of_refunds: bool) -> Self {
        Self {
            dispatcher,
            of_refunds,
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
            let jobs = self.take();
            if jobs.is_empty() {
                break;
            }
            let mut sending = pin!(self.send(jobs));
            if self.of_refunds && timeout(SILENCE, &mut sending).await.is_ok() {
                continue;
            }
            // A reply may be lost, and the refunds behind it need not wait for its deadline.
            let _aside = self.of_refunds.then(|| Aside::step(&self.dispatcher));
            sending.await;
        }
    }

    async fn send(&self, jobs: Vec<Job>) {
        let mut batches: Vec<Vec<Job>> = Vec::with_capacity(1);
        for job in jobs {
            let slot = job.request.slot;
            let is_of_slot = |batch: &&mut Vec<Job>| {
                batch
                    .first()
                    .is_some_and(|first| first.request.slot == slot)
            };
            match batches.iter_mut().find(is_of_slot) {
                Some(batch) => batch.push(job),
                None => batches.push(vec![job]),
            }
        }
        let last = batches.pop().unwrap_or_default();
        let mut calls = JoinSet::new();
        for batch in batches {
            let dispatcher = Arc::clone(&self.dispatcher);
            calls.spawn(async move { send_batch(&dispatcher.server, batch).await });
        }
        send_batch(&self.dispatcher.server, last).await;
        calls.join_all().await;
    }

    /// Takes what waits. Drops checks whose caller left or whose time is over: they are never sent, and
    /// take no units. Returns nothing if nothing waits, or if too many send refunds: then the worker
    /// has ended.
    fn take(&mut self) -> Vec<Job> {
        let server = &self.dispatcher.server;
        let now = Instant::now();
        let reply_at = now + server.latency().expected();
        let mut state = self.dispatcher.state();
        state.is_paced &= !mem::take(&mut self.is_paced);
        let most = match self.of_refunds {
            true => MAX_REFUNDS,
            // What it leaves to the other workers is sent while it waits for its own reply.
            false => {
                let replaced = self.dispatcher.direct().saturating_sub(1);
                let workers = self.dispatcher.workers.saturating_sub(replaced).max(1);
                let share = self.dispatcher.in_flight().div_ceil(workers);
                share.clamp(MIN_CHECKS, MAX_CHECKS)
            }
        };
        let queue = state.queue(self.of_refunds);
        let is_surplus = self.of_refunds && !self.dispatcher.may_send_refunds(queue.workers);
        let mut jobs: Vec<Job> = Vec::with_capacity(most.min(queue.jobs.len()));
        let mut checks = 0;
        let (mut expiring, mut dropped) = (Vec::new(), Vec::new());
        while jobs.len() < most && !is_surplus {
            let has_room = |job: &Job| checks == 0 || checks + job.request.checks() <= MAX_CHECKS;
            if !queue.jobs.front().is_some_and(has_room) {
                break;
            }
            let Some(job) = queue.jobs.pop_front() else {
                break;
            };
            let is_late = match self.of_refunds {
                // Refunds are sent whether their callers wait or not.
                true => job.deadline + REFUND_TIME <= now,
                false => {
                    let caller = job.answer.as_ref();
                    caller.is_none_or(oneshot::Sender::is_closed) || job.deadline <= now
                }
            };
            if is_late {
                dropped.push(job);
            } else if job.deadline <= reply_at && !self.of_refunds {
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
        let is_flood = self.of_refunds && !jobs.is_empty() && !queue.jobs.is_empty();
        if jobs.is_empty() {
            queue.workers -= 1;
            self.has_ended = true;
        } else if !self.of_refunds {
            state.taken_at = now;
        }
        drop(state);
        if is_flood {
            server.record_flood();
        }
        for job in dropped {
            job.answer_too_late(server);
        }
        jobs
    }
}

/// Lets another worker serve the queue of refunds until this is dropped.
struct Aside(Arc<Dispatcher>);

impl Aside {
    fn step(dispatcher: &Arc<Dispatcher>) -> Self {
        let mut state = dispatcher.state();
        state.refunds.workers -= 1;
        match state.refunds.jobs.is_empty() {
            true => drop(state),
            false => dispatcher.start_worker(state, true),
        }
        Self(Arc::clone(dispatcher))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.state().refunds.workers += 1;
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
        state.is_paced &= !self.is_paced;
        let queue = state.queue(self.of_refunds);
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
    let is_refund = jobs.iter().any(|job| job.request.is_refund());
    // A settlement ends with its call. The callers of other refunds have left by their deadlines.
    let waiting = jobs
        .iter()
        .filter(|job| !is_refund || job.request.operation == Operation::Settle);
    let least = Instant::now() + server.shared.timeout * if is_refund { 2 } else { 0 };
    let last = waiting.fold(least, |latest, job| latest.max(job.deadline));
    let requests: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.request)).collect();
    // Equal checks in a row are sent as one.
    let mut checks: Vec<Repeated<'_>> = Vec::with_capacity(jobs.len());
    for request in &requests {
        let previous = checks.last_mut();
        if !previous.is_some_and(|previous| previous.merge(request)) {
            checks.push(Repeated::once(request));
        }
    }
    let mut call = pin!(server.eval(&checks, SendMode::Batched, last));
    let reply = loop {
        let waiting = jobs.iter().filter(|job| job.answer.is_some());
        let next = waiting.map(|job| job.deadline).min();
        let Some(next) = next.filter(|next| *next < last && !is_refund) else {
            break call.await;
        };
        if let Ok(reply) = timeout_at(next, call.as_mut()).await {
            break reply;
        }
        for job in jobs.iter_mut().filter(|job| job.deadline <= next) {
            job.send(Err(server.unanswered(job.deadline)));
        }
    };
    let results = reply.unwrap_or_else(|error| jobs.iter().map(|_| Err(error.clone())).collect());
    for (job, result) in jobs.into_iter().zip(results) {
        job.answer(result);
    }
}
