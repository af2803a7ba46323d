//! Gathers checks into script calls.
//!
//! While few calls are under way, a check is sent directly, in a call of its own.
//! Otherwise it enters a queue. Workers are tasks: each sends in one call what waits, and in the
//! next call what has come meanwhile. So nothing waits at low load, and the more there is to do, the
//! less each check costs Redis and the network. No direct check overtakes a queued one.
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
//! Most queued checks need no timer of their own. They come in the order of their deadlines,
//! and a call ends by the last deadline of its checks. So a worker is free before the
//! checks that wait for it are late. Two kinds need a timer: a check that comes out of order, and one
//! from another runtime than the workers'.
//!
//! If its caller leaves, a queued check is dropped unsent, and takes nothing. A check that was sent
//! stays charged: a direct call continues in a task of its own.

mod direct;
mod job;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout},
};

use self::{
    direct::{DirectCall, DirectPlace},
    job::{Answered, Job},
    worker::{MAX_REFUNDS, MIN_CHECKS, Worker},
};
use super::{
    SendMode, client_reply::Reply, command::Command, deadline::Deadline, pool::Pool,
    request::ScriptRequest, server::Server, shared::Shared,
};
use crate::{
    StoreError,
    charge::Operation,
    error::StoreErrorKind,
    util::{detach::RunToCompletion, lock::lock},
};

/// The most direct calls at a time. All but the first take the place of a worker. One worker stays,
/// because the callers of direct calls may not poll them.
const MAX_DIRECT: usize = 4;
/// Calls beyond those that keep the server busy, which only distance justifies, are sent
/// at this pace.
const PACE: Duration = Duration::from_millis(1);
/// Refunds may have one in this many of the calls under way.
const REFUND_SHARE: usize = 4;

/// Sends checks to one server.
#[derive(Debug)]
pub(super) struct Dispatcher {
    server: Server,
    state: Mutex<State>,
    /// How many workers keep the server busy.
    workers: usize,
    shared: Arc<Shared>,
    /// Checks in flight.
    in_flight: AtomicUsize,
}

/// A queue never waits without a worker. A worker ends when its queue is empty, or when others
/// serve it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) checks: Queue,
    pub(super) refunds: Queue,
    /// Direct calls under way.
    direct: usize,
    next_id: u64,
    /// The latest deadline of the checks that have been queued.
    latest: Option<Deadline>,
    /// Whether a worker waits for its turn by [`PACE`].
    pub(super) is_paced: bool,
    /// When the last batch of checks was taken.
    pub(super) taken_at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: VecDeque<Job>,
    pub(super) workers: usize,
}

/// The state of a check that was handed in.
enum Entered {
    Direct(DirectCall),
    Queued {
        answer: oneshot::Receiver<Answered>,
        /// The number of its job, if it needs a timer of its own.
        timed: Option<u64>,
    },
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
                direct: 0,
                next_id: 0,
                latest: None,
                is_paced: false,
                taken_at: Instant::now(),
            }),
            shared: Arc::clone(shared),
            in_flight: AtomicUsize::new(0),
        })
    }

    pub(super) const fn server(&self) -> &Server {
        &self.server
    }

    /// Counts one more check in flight, or fails if there are too many.
    pub(super) fn admit(self: &Arc<Self>, is_refund: bool) -> Result<InFlight, StoreError> {
        let before = match is_refund {
            // Units must get back in any flood, and take no room from checks.
            true => 0,
            false => self.in_flight.fetch_add(1, Ordering::Relaxed),
        };
        // Made first: its drop takes back what was just counted.
        let in_flight = InFlight {
            dispatcher: Arc::clone(self),
            is_refund,
        };
        match before < self.shared.max_in_flight {
            true => Ok(in_flight),
            false => Err(self.server.with_server(self.server.has_no_room())),
        }
    }

    pub(super) async fn submit(
        request: Arc<ScriptRequest>,
        in_flight: InFlight,
        deadline: Deadline,
    ) -> Answered {
        let dispatcher = Arc::clone(&in_flight.dispatcher);
        let answered = match dispatcher.enter(request, in_flight, deadline) {
            Entered::Direct(call) => {
                let runtime = dispatcher.shared.runtime.clone();
                RunToCompletion::new(call.run(), runtime).await
            }
            Entered::Queued {
                answer,
                timed: None,
            } => answer.await.unwrap_or_else(|_| Err(runtime_is_gone())),
            Entered::Queued {
                mut answer,
                timed: Some(id),
            } => {
                let answered = dispatcher.await_until(deadline, id, &mut answer);
                Box::pin(answered).await
            }
        };
        answered.map_err(|error| dispatcher.server.with_server(error))
    }

    /// Waits with a timer of its own.
    async fn await_until(
        &self,
        deadline: Deadline,
        id: u64,
        answer: &mut oneshot::Receiver<Answered>,
    ) -> Answered {
        match timeout(deadline.remaining(), &mut *answer).await {
            Ok(answered) => answered.unwrap_or_else(|_| Err(runtime_is_gone())),
            Err(_) => self.give_up(deadline, id, answer),
        }
    }

    /// Ends a wait whose time is over. A refund stays in its queue, and is sent although its caller
    /// does not wait. An extension, which renews held units, leaves its queue: its sender tries again.
    fn give_up(
        &self,
        deadline: Deadline,
        id: u64,
        answer: &mut oneshot::Receiver<Answered>,
    ) -> Answered {
        if let Some(job) = self.withdraw(id) {
            job.answer_too_late(&self.server);
        }
        // The answer may have come since the timer fired.
        let answered = answer.try_recv();
        answered.unwrap_or_else(|_| Err(self.server.unanswered(deadline)))
    }

    /// Takes a check or an extension out of its queue, if it is still there.
    fn withdraw(&self, id: u64) -> Option<Job> {
        let mut state = self.state();
        let State {
            checks, refunds, ..
        } = &mut *state;
        [checks, refunds].into_iter().find_map(|queue| {
            // Jobs are numbered in the order in which they enter.
            let place = queue.jobs.binary_search_by_key(&id, |job| job.id).ok()?;
            let request = &queue.jobs.get(place)?.request;
            let mut charges = request.charges.iter();
            let holds = charges.any(|charge| charge.hold_lifetime().is_some());
            let is_extension = request.operation == Operation::Renew && holds;
            let may_leave = !request.is_refund() || is_extension;
            may_leave.then(|| queue.jobs.remove(place))?
        })
    }

    fn enter(
        self: &Arc<Self>,
        request: Arc<ScriptRequest>,
        in_flight: InFlight,
        deadline: Deadline,
    ) -> Entered {
        // If its caller leaves, a direct call continues in the workers' runtime. So its timers must be
        // of that runtime: those of another one may stand still.
        let is_here = Handle::try_current().is_ok_and(|here| here.id() == self.shared.runtime.id());
        let is_refund = request.is_refund();
        let mut state = self.state();
        if !is_refund && is_here && self.goes_directly(&state, deadline) {
            state.direct += 1;
            drop(state);
            return Entered::Direct(DirectCall {
                request,
                deadline,
                _in_flight: in_flight,
                place: DirectPlace(Arc::clone(self)),
            });
        }
        let id = state.next_id;
        state.next_id += 1;
        let (sender, answer) = oneshot::channel();
        let job = Job {
            id,
            request,
            deadline,
            answer: Some(sender),
            answers_before: self.server.answers(),
            _in_flight: in_flight,
        };
        if is_refund {
            // A settlement has a long deadline, and ends with its call.
            let timed = (job.request.operation != Operation::Settle).then_some(id);
            state.refunds.jobs.push_back(job);
            self.start_refund_worker(state);
            return Entered::Queued { answer, timed };
        }
        let latest = state.latest.unwrap_or(deadline).later(deadline);
        state.latest = Some(latest);
        state.checks.jobs.push_back(job);
        self.start_worker(state);
        let needs_timer = !is_here || deadline.is_before(latest);
        let timed = needs_timer.then_some(id);
        Entered::Queued { answer, timed }
    }

    /// Returns whether a check is sent directly: if no call is under way, or if too little is under way
    /// to share a call and `MIN_CHECKS` calls in a row would end by the deadline.
    fn goes_directly(&self, state: &State, deadline: Deadline) -> bool {
        let is_idle = self.calls(state) == 0;
        let fits = || {
            let latency = self.server.latency();
            latency.fits(MIN_CHECKS as u32, deadline.remaining())
        };
        is_idle
            || state.checks.jobs.is_empty()
                && state.direct < MAX_DIRECT
                && self.calls(state) <= self.workers
                && self.in_flight() < MIN_CHECKS
                && fits()
    }

    /// Starts a worker if a check waits for one, and one more call is of use.
    fn start_worker(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(last) = state.checks.jobs.back() else {
            return;
        };
        let remaining = last.deadline.remaining();
        let (calls, workers) = (self.calls(&state), state.checks.workers);
        let is_overloaded = || self.server.latency().is_overloaded_for(remaining);
        let max_calls = || self.server.latency().max_calls();
        let pause = if workers == 0 {
            Duration::ZERO
        } else if workers < self.workers && calls <= self.workers {
            if state.checks.jobs.len() < MIN_CHECKS && is_overloaded() {
                return;
            }
            Duration::ZERO
        } else if !state.is_paced && calls < max_calls() && !is_overloaded() {
            PACE.saturating_sub(state.taken_at.elapsed())
        } else {
            return;
        };
        state.checks.workers += 1;
        state.is_paced |= !pause.is_zero();
        drop(state);
        let worker = Worker::of_checks(Arc::clone(self));
        self.shared.runtime.spawn(worker.run(pause));
    }

    fn start_refund_worker(self: &Arc<Self>, state: MutexGuard<'_, State>) {
        let Queue { jobs, workers } = &state.refunds;
        let is_worth_it = *workers == 0
            || jobs.len() >= MAX_REFUNDS
                && *workers < self.server.latency().max_calls() / REFUND_SHARE;
        if !is_worth_it {
            return;
        }
        self.add_refund_worker(state);
    }

    /// Adapts the number of workers for refunds, after a call of one of them. Starts one more if
    /// refunds are left behind. Returns `false` if this worker has to end, because there are too many.
    ///
    /// As many refunds as checks may be under way, if two calls of each worker, one after another and
    /// each as long as the last call, end within the timeout of a check.
    pub(super) fn share_refunds(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        let workers = state.refunds.workers;
        let may_be = |workers: usize| {
            let calls = u32::try_from(2 * workers).unwrap_or(u32::MAX);
            let latency = self.server.latency();
            workers <= (latency.max_calls() / REFUND_SHARE).max(1)
                || workers * MAX_REFUNDS <= self.in_flight()
                    && latency.fits(calls, self.server.timeout())
        };
        if !may_be(workers) {
            state.refunds.workers -= 1;
            return false;
        }
        if state.refunds.jobs.len() >= MAX_REFUNDS && may_be(workers + 1) {
            self.add_refund_worker(state);
        }
        true
    }

    fn add_refund_worker(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.refunds.workers += 1;
        drop(state);
        let worker = Worker::of_refunds(Arc::clone(self));
        let Shared { tasks, runtime, .. } = &*self.shared;
        tasks.spawn(runtime, worker.run(Duration::ZERO));
    }

    /// Returns how many checks a worker takes: what it leaves to the other workers is sent
    /// while it waits for its own reply.
    pub(super) fn share_of_one(&self, state: &State) -> usize {
        // All but the first direct call take the place of a worker.
        let replaced = state.direct.saturating_sub(1);
        let workers = self.workers.saturating_sub(replaced).max(1);
        self.in_flight().div_ceil(workers)
    }

    fn calls(&self, state: &State) -> usize {
        state.direct + state.checks.workers
    }

    /// Returns how many checks wait for the server.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A check in flight, or a refund.
#[derive(Debug)]
pub(super) struct InFlight {
    dispatcher: Arc<Dispatcher>,
    is_refund: bool,
}

impl InFlight {
    pub(super) async fn send(
        self,
        command: &Command,
        mode: SendMode,
        deadline: Deadline,
    ) -> Result<Reply, StoreError> {
        self.dispatcher.server.send(command, mode, deadline).await
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.is_refund {
            self.dispatcher.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn runtime_is_gone() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
}
