//! Gathers checks into script calls.
//!
//! A check that comes while nothing else is under way goes out by itself, at
//! once. Others take a lane; while all lanes are taken, they queue up, and the
//! next lane that is free takes all that wait, up to a bound, in one call. So
//! nothing waits at low load, and the more there is to do, the less each check
//! costs Redis and the network.
//!
//! Lanes are tasks of their own: a caller who leaves, or who does not look at
//! its answer, holds nobody up.
//!
//! In a cluster a call may only hold keys of one slot. What a lane takes is
//! then several calls, sent together, whose answers come together.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet, time::timeout};

use super::{
    call::{Deadline, Manner},
    node::{Counted, Node},
    reply::Found,
    script::Encoded,
};
use crate::{StoreError, error::StoreErrorKind};

/// Calls in flight on each connection. One more than one, so that Redis has
/// work while an answer is on its way.
const LANES_PER_CONNECTION: usize = 2;
/// At 7 us of Redis each, half a millisecond in which nobody else is served.
const MOST_PER_LANE: usize = 64;

#[derive(Debug)]
pub(super) struct Dispatch {
    state: Mutex<State>,
    lanes: usize,
    runtime: Handle,
}

/// Whoever waits is served: while there is somebody, a lane is taken, and a
/// lane is given back only when there is nobody.
#[derive(Debug, Default)]
struct State {
    tickets: u64,
    /// One check is under way by itself.
    is_one_alone: bool,
    lanes_taken: usize,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    check: Encoded,
    deadline: Deadline,
    answer: oneshot::Sender<Result<Found, StoreError>>,
    /// Stays until a lane takes the check out, even when its caller has left.
    counted: Counted,
}

impl Dispatch {
    pub(super) fn new(runtime: Handle, connections: usize) -> Self {
        Self {
            state: Mutex::default(),
            lanes: LANES_PER_CONNECTION * connections,
            runtime,
        }
    }

    pub(super) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Takes a check out of the queue, if it is still there.
    fn withdraw(&self, ticket: u64) -> bool {
        let mut state = self.state();
        let place = state
            .waiting
            .iter()
            .position(|waiting| waiting.ticket == ticket);
        place.is_some_and(|place| state.waiting.remove(place).is_some())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Decides on a check. The queue is bounded by the number of checks that
    /// may be in flight.
    pub(super) async fn decide(
        self: &Arc<Self>,
        check: Encoded,
        deadline: Deadline,
        counted: Counted,
    ) -> Result<Found, StoreError> {
        if let Some(alone) = self.go_alone() {
            let call = async move {
                let found = alone.0.call_for_one(check, Manner::Plain, deadline).await;
                drop((alone, counted));
                found
            };
            return Finished::of(call, self.dispatch.runtime.clone()).await;
        }
        let answers = self.answers();
        let (answer, receiver) = oneshot::channel();
        let ticket = self.queue(|ticket| Waiting {
            ticket,
            check,
            deadline,
            answer,
            counted,
        });
        match timeout(deadline.left(), receiver).await {
            Ok(Ok(answer)) => answer,
            // The runtime that the store was built in is gone.
            Ok(Err(_)) => Err(StoreError::new(StoreErrorKind::Unavailable)),
            // It was not its turn, though others had theirs: a flood.
            Err(_) if self.dispatch.withdraw(ticket) && self.answers() != answers => {
                Err(StoreError::new(StoreErrorKind::Overloaded))
            }
            Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
        }
    }

    fn queue(self: &Arc<Self>, waiting: impl FnOnce(u64) -> Waiting) -> u64 {
        let mut state = self.dispatch.state();
        state.tickets += 1;
        let ticket = state.tickets;
        state.waiting.push_back(waiting(ticket));
        if state.lanes_taken < self.dispatch.lanes {
            state.lanes_taken += 1;
            drop(state);
            let lane = Lane {
                node: Arc::clone(self),
                is_given_back: false,
            };
            self.dispatch.runtime.spawn(lane.serve());
        }
        ticket
    }

    /// If nothing is under way.
    fn go_alone(self: &Arc<Self>) -> Option<Alone> {
        let mut state = self.dispatch.state();
        if state.is_one_alone || state.lanes_taken > 0 {
            return None;
        }
        state.is_one_alone = true;
        Some(Alone(Arc::clone(self)))
    }
}

/// A check under way without a lane, in its caller's own task. If that caller
/// never looks again, all others still have the lanes.
struct Alone(Arc<Node>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.dispatch.state().is_one_alone = false;
    }
}

/// A call that goes on by itself when its caller leaves: how it ends tells of
/// the server.
struct Finished<F: Future<Output: Send> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> Finished<F> {
    fn of(call: F, runtime: Handle) -> Self {
        Self {
            call: Some(Box::pin(call)),
            runtime,
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finished<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(call) = &mut self.call else {
            // Polled again after it was ready, which no caller may do.
            return Poll::Pending;
        };
        let found = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(found)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finished<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move { drop(call.await) });
        }
    }
}

/// Serves the queue until it is empty.
struct Lane {
    node: Arc<Node>,
    is_given_back: bool,
}

impl Lane {
    async fn serve(mut self) {
        while let Some(gathered) = self.gather() {
            let mut slots = gathered.iter().map(|waiting| waiting.check.slot);
            let first = slots.next();
            if slots.all(|slot| Some(slot) == first) {
                decide(&self.node, gathered).await;
            } else {
                self.decide_by_slot(gathered).await;
            }
        }
    }

    async fn decide_by_slot(&self, gathered: Vec<Waiting>) {
        let mut groups: Vec<(u16, Vec<Waiting>)> = Vec::new();
        for waiting in gathered {
            let slot = waiting.check.slot;
            match groups.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, group)) => group.push(waiting),
                None => groups.push((slot, vec![waiting])),
            }
        }
        let mut calls = JoinSet::new();
        for (_, group) in groups {
            let node = Arc::clone(&self.node);
            calls.spawn(async move { decide(&node, group).await });
        }
        while calls.join_next().await.is_some() {}
    }

    /// Who waits, without those who left. `None`: nobody, and the lane is given back.
    fn gather(&mut self) -> Option<Vec<Waiting>> {
        let mut state = self.node.dispatch.state();
        let mut gathered = Vec::new();
        while gathered.len() < MOST_PER_LANE {
            match state.waiting.pop_front() {
                Some(waiting) if waiting.answer.is_closed() => {}
                Some(waiting) => gathered.push(waiting),
                None => break,
            }
        }
        if gathered.is_empty() {
            state.lanes_taken -= 1;
            self.is_given_back = true;
            return None;
        }
        Some(gathered)
    }
}

/// Decides on checks of one slot in one call.
async fn decide(node: &Node, gathered: Vec<Waiting>) {
    let mut checks = Vec::with_capacity(gathered.len());
    let mut answers: SmallVec<[_; 1]> = SmallVec::new();
    let mut counted: SmallVec<[_; 1]> = SmallVec::new();
    let mut last = Deadline::past();
    for waiting in gathered {
        last = last.later(waiting.deadline);
        answers.push((waiting.check.shape.clone(), waiting.answer));
        checks.push(waiting.check);
        counted.push(waiting.counted);
    }
    let mut reply = node.call(checks, Manner::Plain, last).await;
    drop(counted);
    for (shape, answer) in answers {
        let found = match &mut reply {
            Ok(reply) => reply.found(&shape),
            Err(error) => Err(error.clone()),
        };
        // A caller who left meanwhile was charged, as any whose answer is lost.
        let _ = answer.send(found);
    }
}

impl Drop for Lane {
    /// Before it was given back: the runtime is gone, and nobody will serve
    /// those who wait. They are told so.
    fn drop(&mut self) {
        if !self.is_given_back {
            let mut state = self.node.dispatch.state();
            state.lanes_taken -= 1;
            state.waiting.clear();
        }
    }
}
