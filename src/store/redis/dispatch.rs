//! Gathers checks into script calls.
//!
//! A check that comes while few calls are under way is sent by itself, at once.
//! Others take a lane: a task that sends what waits in one call, and then what
//! has come meanwhile. While all lanes are taken, checks wait in a queue. So
//! nothing waits at low load, and the more there is to do, the less each check
//! costs Redis and the network. A check that is sent by itself overtakes none
//! that waits.
//!
//! Each call costs the server as much as some checks do, and all processes of a
//! fleet send theirs. So a few calls at a time are enough for load: what waits
//! meanwhile shares the next. Distance is not load: calls that are on a long way
//! cost the server nothing. Where answers are long under way and calls hardly
//! wait for each other ([`RoundTrip`]), one more lane opens each millisecond.
//!
//! What is given back and renewed has lanes of its own, a small part of all
//! calls: it may come in any number, and no check waits behind it.
//!
//! No check that waits has a timer of its own. They come in the order of their
//! deadlines, and a call ends by the last of its own: so a lane is free before
//! those who wait for it are late. A check that comes out of order, or waits in
//! another runtime than the lanes', has its own timer.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{
    call::{Deadline, Manner},
    lane::{LEAST_PER_LANE, Lane, Load, REFUNDS_PER_LANE},
    node::{Counted, Node},
    reply::Found,
    round_trip::{Ended, RoundTrip},
    waiting::{Queued, Waiting},
};
use crate::{StoreError, store::finished::Finished};

/// Calls in flight on each connection, and one more: so that Redis has work while
/// an answer is on its way, and another is read here.
const LANES_PER_CONNECTION: usize = 3;
/// Checks under way by themselves, in place of as many calls. A lane goes on beside
/// them, as their callers may not look at their answers.
const MOST_ALONE: usize = LANES_PER_CONNECTION + 1;
/// Between calls beyond these, which only distance justifies.
const PACE: Duration = Duration::from_millis(1);
/// Of the calls that may be under way, one in so many may be of refunds.
const REFUND_SHARE: usize = 4;

#[derive(Debug)]
pub(super) struct Dispatch {
    state: Mutex<State>,
    lanes: usize,
    runtime: Handle,
}

/// While a check or a refund waits, a lane for it is taken, and a lane is given
/// back only when none waits.
#[derive(Debug)]
pub(super) struct State {
    /// Checks that are under way by themselves.
    alone: usize,
    pub(super) lanes_taken: usize,
    pub(super) waiting: VecDeque<Queued>,
    /// The latest deadline of any that waited.
    latest: Option<Deadline>,
    pub(super) round_trip: RoundTrip,
    /// A lane is to take what waits once the last call is a [`PACE`] ago.
    pub(super) is_paced: bool,
    pub(super) sent_at: Instant,
    /// What is given back or renewed.
    pub(super) refunds: VecDeque<Queued>,
    pub(super) refund_lanes: usize,
    /// When there were last more of them than one call takes.
    pub(super) flooded_at: Option<Instant>,
}

impl State {
    pub(super) const fn calls(&self) -> usize {
        self.alone + self.lanes_taken
    }
}

/// How a check is under way.
enum Entered {
    Alone(Alone),
    Queue { is_in_order: bool },
}

impl Dispatch {
    pub(super) fn new(runtime: Handle, connections: usize) -> Self {
        let lanes = LANES_PER_CONNECTION * connections;
        let state = State {
            alone: 0,
            lanes_taken: 0,
            waiting: VecDeque::new(),
            latest: None,
            round_trip: RoundTrip::new(lanes),
            is_paced: false,
            sent_at: Instant::now(),
            refunds: VecDeque::new(),
            refund_lanes: 0,
            flooded_at: None,
        };
        Self {
            state: Mutex::new(state),
            lanes,
            runtime,
        }
    }

    /// Whether the lanes' runtime is the one that we are in.
    fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// Takes a check out of the queue, if it is still there.
    fn withdraw(&self, waiting: &Arc<Waiting>) -> Option<Queued> {
        let mut state = self.state();
        let mut places = state.waiting.iter();
        let place = places.position(|queued| Arc::ptr_eq(&queued.waiting, waiting))?;
        state.waiting.remove(place)
    }

    /// As many lanes as there may be beside those who are alone: all but the first
    /// take the place of one.
    pub(super) fn lanes_beside(&self, state: &State) -> usize {
        let in_place = state.alone.saturating_sub(1);
        self.lanes.saturating_sub(in_place).max(1)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Decides on a check. The queue is bounded by the number of checks that
    /// may be in flight.
    pub(super) async fn decide(
        waiting: &Arc<Waiting>,
        counted: Counted,
    ) -> Result<Found, StoreError> {
        let node = Arc::clone(counted.node());
        let queued = Queued::new(waiting, node.answers(), counted);
        if queued.is_refund() {
            node.enter_refund(queued);
            return Box::pin(node.watch(waiting)).await;
        }
        let is_here = node.dispatch.is_here();
        match node.enter(queued, is_here) {
            Entered::Alone(alone) => {
                let runtime = node.dispatch.runtime.clone();
                Finished::of(alone.call(), runtime).await
            }
            Entered::Queue { is_in_order } if is_in_order && is_here => {
                poll_fn(|cx| waiting.poll(cx)).await
            }
            Entered::Queue { .. } => Box::pin(node.watch(waiting)).await,
        }
    }

    /// Waits with a timer of its own.
    async fn watch(&self, waiting: &Arc<Waiting>) -> Result<Found, StoreError> {
        let answer = timeout(waiting.deadline.left(), poll_fn(|cx| waiting.poll(cx)));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => self.give_up(waiting),
        }
    }

    /// A refund stays where it is, and is sent though nobody waits for it.
    fn give_up(&self, waiting: &Arc<Waiting>) -> Result<Found, StoreError> {
        if let Some(queued) = self.dispatch.withdraw(waiting) {
            return Err(queued.too_late());
        }
        // It may have been told since its time was over.
        let told = waiting.take();
        told.unwrap_or_else(|| Err(self.late(waiting.deadline)))
    }

    /// By itself goes only who is in the lanes' runtime, where it ends if its
    /// caller leaves: timers of another may stand still.
    fn enter(self: &Arc<Self>, queued: Queued, is_here: bool) -> Entered {
        let deadline = queued.waiting.deadline;
        let mut state = self.dispatch.state();
        if is_here && self.goes_alone(&state, deadline) {
            state.alone += 1;
            return Entered::Alone(Alone {
                queued,
                ended: None,
            });
        }
        let latest = state
            .latest
            .map_or(deadline, |latest| deadline.later(latest));
        state.latest = Some(latest);
        state.waiting.push_back(queued);
        self.open_lane(state);
        Entered::Queue {
            is_in_order: !deadline.is_before(latest),
        }
    }

    fn enter_refund(self: &Arc<Self>, queued: Queued) {
        let mut state = self.dispatch.state();
        state.refunds.push_back(queued);
        let most = state.round_trip.most_calls() / REFUND_SHARE;
        let is_free = state.refund_lanes == 0
            || state.refund_lanes < most && state.refunds.len() >= REFUNDS_PER_LANE;
        state.refund_lanes += usize::from(is_free);
        drop(state);
        if is_free {
            let lane = Lane::of(Arc::clone(self), Load::Refunds);
            self.tasks().spawn(&self.dispatch.runtime, lane.serve());
        }
    }

    /// While there is not enough under way for a call that is worth it, and all of
    /// that would be answered in time if it went one after another.
    fn goes_alone(&self, state: &State, deadline: Deadline) -> bool {
        state.calls() == 0
            || state.waiting.is_empty()
                && state.alone < MOST_ALONE
                && state.calls() <= self.dispatch.lanes
                && self.in_flight() < LEAST_PER_LANE
                && state
                    .round_trip
                    .fits(LEAST_PER_LANE as u32, deadline.left())
    }

    /// If a check waits for a lane, and one may be taken.
    fn open_lane(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(last) = state.waiting.back() else {
            return;
        };
        let (calls, lanes) = (state.calls(), self.dispatch.lanes);
        let is_slow = || {
            let left = last.waiting.deadline.left();
            state.round_trip.is_slow_for(left)
        };
        let pause = if state.lanes_taken == 0 {
            Duration::ZERO
        } else if state.lanes_taken < lanes && calls <= lanes {
            if state.waiting.len() < LEAST_PER_LANE && is_slow() {
                return;
            }
            Duration::ZERO
        } else if !state.is_paced && calls < state.round_trip.most_calls() && !is_slow() {
            PACE.saturating_sub(state.sent_at.elapsed())
        } else {
            return;
        };
        state.lanes_taken += 1;
        state.is_paced |= !pause.is_zero();
        drop(state);
        let lane = Lane::of(Arc::clone(self), Load::Checks { pause });
        self.dispatch.runtime.spawn(lane.serve());
    }

    /// Learns how a call ended, while it still counts as under way.
    pub(super) fn record(&self, state: &mut State, ended: Ended) {
        let calls = state.calls();
        state.round_trip.record(ended, calls, self.timeout());
    }
}

/// A check under way without a lane, in its caller's own task. If that caller
/// never looks again, all others still have the lanes.
struct Alone {
    queued: Queued,
    ended: Option<Ended>,
}

impl Alone {
    async fn call(mut self) -> Result<Found, StoreError> {
        let waiting = &self.queued.waiting;
        let (node, sent) = (self.queued.node(), Deadline::now());
        let call = node.call_for_one(&waiting.question, Manner::Plain, waiting.deadline);
        let answer = call.await;
        let server_us = answer.as_ref().ok().map(|found| found.now_us);
        self.ended = node.ended(sent, waiting.deadline, answer.as_ref().err(), server_us);
        answer
    }
}

impl Drop for Alone {
    /// A lane may go on in its place.
    fn drop(&mut self) {
        let node = self.queued.node();
        let mut state = node.dispatch.state();
        if let Some(ended) = self.ended {
            node.record(&mut state, ended);
        }
        state.alone -= 1;
        node.open_lane(state);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::charge::Operation;
    use crate::store::redis::{
        connection::Connections, key::KeyNames, node::Asker, pool::Settings, question::Question,
    };

    #[tokio::test]
    async fn an_answer_that_came_at_the_end_of_its_time_is_taken() {
        let names = KeyNames::new("tt".to_owned(), None).expect("names");
        let asker = Asker::new(names, Duration::from_secs(1), 0, None, Default::default());
        let settings = Settings::of_server("127.0.0.1:1").expect("settings");
        let here = Handle::current();
        let connections = Connections::connect(&here, settings, 1, 8, drop);
        let node = Node::new(here, connections.expect("connections"), 8, asker);
        let waiting = || {
            let question = Question {
                operation: Operation::Take,
                slot: 0,
                legs: Default::default(),
            };
            Waiting::new(question, Deadline::after(Duration::ZERO))
        };
        let found = Found {
            now_us: 7,
            fitting: 1,
            standings: Default::default(),
        };

        let told = waiting();
        told.tell(Ok(found));
        let answer = node.give_up(&told).expect("an answer");
        assert_eq!(answer.now_us, 7);

        let sent = node.give_up(&waiting()).expect_err("no answer");
        assert!(sent.is_timeout() && sent.may_have_run());

        let queued = waiting();
        let counted = node.counted(false).expect("room");
        let in_queue = Queued::new(&queued, node.answers(), counted);
        node.dispatch.state().waiting.push_back(in_queue);
        let not_sent = node.give_up(&queued).expect_err("no answer");
        assert!(!not_sent.may_have_run(), "{not_sent:?}");
    }
}
