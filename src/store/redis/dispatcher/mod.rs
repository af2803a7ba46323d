//! Gathers checks into script calls.
//!
//! While few checks are in flight, a check is sent directly, in a call of its own, by its caller's
//! own task.
//! Otherwise it enters a queue. Workers are tasks: each sends in one call what waits, and in the
//! next call what has come meanwhile. So nothing waits at low load, and the more there is to do, the
//! less each check costs Redis and the network.
//!
//! Each call costs the server as much as several checks do, and all processes of a fleet
//! send calls. So few workers are enough for load: the checks that come meanwhile share the next
//! call. Distance is not load: while a call travels, it costs the server nothing. If calls
//! take long and hardly wait for each other ([`Latency`](super::latency::Latency)), one more
//! worker starts each millisecond.
//!
//! Refunds, settlements and renewals are all called *refunds* here. They may come in any number, and
//! no check may wait behind them. So they have a queue and workers of their own, which send a small
//! part of all calls. But each request that holds units needs a check and a settlement. With a small
//! part only, a server at its limit lost 44 % of them. So if many refunds wait and the server is fast
//! enough, as many refunds as checks may be under way.
//!
//! If its caller leaves, a queued check is dropped unsent, and takes nothing. A check that was sent
//! stays charged: a direct call continues in a task of its own.

#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout_at},
};

use self::worker::{MAX_REFUNDS, MIN_CHECKS, Worker};
use super::{
    SendMode, pool::Pool, reply::CheckResult, request::ScriptRequest, server::Server,
    shared::Shared,
};
use crate::{
    StoreError,
    charge::Operation,
    error::StoreErrorKind,
    util::{detach::run_on, lock::lock},
};

/// Calls beyond those that keep the server busy, which only distance justifies, are sent
/// at this pace.
const PACE: Duration = Duration::from_millis(1);
/// Refunds may have one in this many of the calls under way.
const REFUND_SHARE: usize = 4;
/// Tokio's timers are this exact. A caller's own timer fires so much later than its call ends.
const TICK: Duration = Duration::from_millis(1);

/// Sends checks to one server.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) server: Server,
    state: Mutex<State>,
    /// How many workers keep the server busy.
    workers: usize,
    /// Room for checks in flight.
    room: Arc<Semaphore>,
    /// Has a clone for each direct call under way.
    direct: Arc<()>,
}

/// A queue never waits without a worker. A worker ends when its queue is empty, or when others
/// serve it.
#[derive(Debug)]
struct State {
    checks: Queue,
    refunds: Queue,
    next_id: u64,
    /// Whether a worker waits for its turn by [`PACE`].
    is_paced: bool,
    /// When the last batch of checks was taken.
    taken_at: Instant,
    /// The latest deadline of all checks that were queued.
    latest: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    workers: usize,
}

/// A check that is not decided yet. If it is dropped unanswered, the runtime of the store
/// is gone.
#[derive(Debug)]
struct Job {
    id: u64,
    request: Arc<ScriptRequest>,
    deadline: Instant,
    /// `None` once its caller has an answer.
    answer: Option<oneshot::Sender<Result<CheckResult, StoreError>>>,
    /// How many calls had been answered when it came.
    answers_before: u64,
    /// It takes room until it is decided, even if its caller has left.
    room: Option<OwnedSemaphorePermit>,
}

impl Job {
    fn answer(mut self, answer: Result<CheckResult, StoreError>) {
        drop(self.room.take());
        self.send(answer);
    }

    /// Answers its caller, if none has. The job keeps its room.
    fn send(&mut self, answer: Result<CheckResult, StoreError>) {
        if let Some(sender) = self.answer.take() {
            // A caller that has left was charged, as any caller whose answer is lost.
            let _ = sender.send(answer);
        }
    }

    fn answer_too_late(self, server: &Server) {
        let error = server.too_late(self.deadline, self.answers_before);
        self.answer(Err(error));
    }
}

impl State {
    fn queue(&mut self, of_refunds: bool) -> &mut Queue {
        match of_refunds {
            true => &mut self.refunds,
            false => &mut self.checks,
        }
    }
}

impl Dispatcher {
    pub(super) fn new(pool: Pool, shared: &Arc<Shared>) -> Arc<Self> {
        let server = Server::new(pool, Arc::clone(shared));
        Arc::new(Self {
            workers: server.useful_calls(),
            server,
            state: Mutex::new(State {
                checks: Queue::default(),
                refunds: Queue::default(),
                next_id: 0,
                is_paced: false,
                taken_at: Instant::now(),
                latest: Instant::now(),
            }),
            room: Arc::new(Semaphore::new(shared.max_in_flight)),
            direct: Arc::default(),
        })
    }

    /// Returns room for one more check in flight, or fails if there are too many. Units must get back
    /// in any flood, so a refund takes none.
    pub(super) fn admit(
        &self,
        is_refund: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        if is_refund {
            return Ok(None);
        }
        let room = Arc::clone(&self.room).try_acquire_owned();
        let room = room.map_err(|_| self.server.with_server(self.server.has_no_room()))?;
        Ok(Some(room))
    }

    pub(super) async fn submit(
        self: Arc<Self>,
        request: Arc<ScriptRequest>,
        room: Option<OwnedSemaphorePermit>,
        deadline: Instant,
    ) -> Result<CheckResult, StoreError> {
        let answered = if self.goes_directly(&request, deadline) {
            let (dispatcher, direct) = (Arc::clone(&self), Arc::clone(&self.direct));
            let call = async move {
                let server = &dispatcher.server;
                let mode = SendMode::Batched;
                let answered = server.eval_alone(&request, mode, deadline).await;
                drop((room, direct));
                // Leaves its place to a worker.
                dispatcher.start_worker(dispatcher.state(), false);
                answered
            };
            run_on(self.server.shared.runtime.clone(), call).await
        } else {
            self.wait_in_queue(request, room, deadline).await
        };
        answered.map_err(|error| self.server.with_server(error))
    }

    /// Returns whether a check is sent directly: if no call is under way, or if no check waits and
    /// `MIN_CHECKS` calls in a row would end by the deadline.
    ///
    /// All direct calls but the first take the place of a worker. One worker stays, because the callers
    /// of direct calls may not poll them. With direct calls only below 5 checks in flight, the row
    /// "growth: Redis, 16 in flight" lost 18 %.
    fn goes_directly(&self, request: &ScriptRequest, deadline: Instant) -> bool {
        // If its caller leaves, a direct call continues in the workers' runtime.
        if request.is_refund() || self.in_flight() >= MIN_CHECKS || !self.is_here() {
            return false;
        }
        let state = self.state();
        let calls = state.checks.workers + self.direct();
        let remaining = deadline.saturating_duration_since(Instant::now());
        calls == 0
            || state.checks.jobs.is_empty()
                && calls <= self.workers
                && (self.server.latency()).fits(MIN_CHECKS as u32, remaining)
    }

    /// Returns whether the caller runs in the workers' runtime. The timers of another one may stand
    /// still.
    fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.server.shared.runtime.id())
    }

    async fn wait_in_queue(
        self: &Arc<Self>,
        request: Arc<ScriptRequest>,
        room: Option<OwnedSemaphorePermit>,
        deadline: Instant,
    ) -> Result<CheckResult, StoreError> {
        let (is_refund, operation) = (request.is_refund(), request.operation);
        let (id, is_early, mut answer) = self.enqueue(request, room, deadline);
        // A settlement has a long deadline, and ends with its call. A worker keeps the deadlines of
        // checks: a timer for each cost the row "Redis: one hot caller" 10 %. But a check may be behind
        // others with later deadlines, and the workers' runtime may stand still.
        let is_timed = match is_refund {
            true => operation != Operation::Settle,
            false => is_early || !self.is_here(),
        };
        // The runtime of the workers is gone.
        let is_gone = |_| Err(StoreError::new(StoreErrorKind::Unavailable));
        if !is_timed {
            return answer.await.unwrap_or_else(is_gone);
        }
        // Boxed, because few checks have a timer.
        match Box::pin(timeout_at(deadline + TICK, &mut answer)).await {
            Ok(answered) => answered.unwrap_or_else(is_gone),
            Err(_) => self.give_up(deadline, id, &mut answer),
        }
    }

    /// Ends a wait whose time is over. A refund stays in its queue, and is sent although its caller
    /// does not wait.
    fn give_up(
        &self,
        deadline: Instant,
        id: u64,
        answer: &mut oneshot::Receiver<Result<CheckResult, StoreError>>,
    ) -> Result<CheckResult, StoreError> {
        let queued = {
            let jobs = &mut self.state().checks.jobs;
            // Jobs are numbered in the order in which they enter.
            let place = jobs.binary_search_by_key(&id, |job| job.id);
            place.ok().and_then(|place| jobs.remove(place))
        };
        if let Some(job) = queued {
            job.answer_too_late(&self.server);
        }
        // The answer may have come since the timer fired.
        let answered = answer.try_recv();
        answered.unwrap_or_else(|_| Err(self.server.unanswered(deadline)))
    }

    /// Returns the number of the job, whether a queued check has a later deadline, and the answer.
    fn enqueue(
        self: &Arc<Self>,
        request: Arc<ScriptRequest>,
        room: Option<OwnedSemaphorePermit>,
        deadline: Instant,
    ) -> (
        u64,
        bool,
        oneshot::Receiver<Result<CheckResult, StoreError>>,
    ) {
        let (sender, answer) = oneshot::channel();
        let is_refund = request.is_refund();
        let answers_before = self.server.answers();
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let is_early = deadline + TICK < state.latest;
        if !is_refund {
            state.latest = state.latest.max(deadline);
        }
        state.queue(is_refund).jobs.push_back(Job {
            id,
            request,
            deadline,
            answer: Some(sender),
            answers_before,
            room,
        });
        self.start_worker(state, is_refund);
        (id, is_early, answer)
    }

    /// Starts a worker if a check or a refund waits for one, and one more call is of use.
    fn start_worker(self: &Arc<Self>, mut state: MutexGuard<'_, State>, of_refunds: bool) {
        let pause = match of_refunds {
            true => self.needs_refund_worker(&state).then_some(Duration::ZERO),
            false => self.pause_before_worker(&state),
        };
        let Some(pause) = pause else {
            return;
        };
        state.queue(of_refunds).workers += 1;
        state.is_paced |= !pause.is_zero();
        drop(state);
        let work = Worker::new(Arc::clone(self), of_refunds).run(pause);
        let Shared { tasks, runtime, .. } = &*self.server.shared;
        match of_refunds {
            true => tasks.spawn(runtime, work),
            false => drop(runtime.spawn(work)),
        }
    }

    /// Returns after which pause one more worker for checks is of use, if it is.
    fn pause_before_worker(&self, state: &State) -> Option<Duration> {
        let Queue { jobs, workers } = &state.checks;
        let deadline = jobs.back()?.deadline;
        if *workers == 0 {
            return Some(Duration::ZERO);
        }
        let calls = workers + self.direct();
        let latency = self.server.latency();
        let is_overloaded =
            || latency.is_overloaded_for(deadline.saturating_duration_since(Instant::now()));
        if *workers < self.workers && calls <= self.workers {
            return (jobs.len() >= MIN_CHECKS || !is_overloaded()).then_some(Duration::ZERO);
        }
        let is_far = !state.is_paced && calls < latency.max_calls && !is_overloaded();
        is_far.then(|| PACE.saturating_sub(state.taken_at.elapsed()))
    }

    fn needs_refund_worker(&self, state: &State) -> bool {
        let Queue { jobs, workers } = &state.refunds;
        *workers == 0 || jobs.len() >= MAX_REFUNDS && self.may_send_refunds(workers + 1)
    }

    /// Returns whether so many workers may send refunds.
    ///
    /// As many refunds as checks may be under way, if two calls of each worker, one after another and
    /// each as long as the last call, end within the timeout of a check.
    fn may_send_refunds(&self, workers: usize) -> bool {
        let calls = u32::try_from(2 * workers).unwrap_or(u32::MAX);
        let latency = self.server.latency();
        workers <= (latency.max_calls / REFUND_SHARE).max(1)
            || workers * MAX_REFUNDS <= self.in_flight()
                && latency.fits(calls, self.server.shared.timeout)
    }

    /// Returns how many direct calls are under way.
    fn direct(&self) -> usize {
        Arc::strong_count(&self.direct) - 1
    }

    /// Returns how many checks wait for the server.
    pub(super) fn in_flight(&self) -> usize {
        self.server.shared.max_in_flight - self.room.available_permits()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
