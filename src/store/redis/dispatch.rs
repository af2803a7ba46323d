//! Gathers checks into script calls.
//!
//! A check that comes while nothing else is under way goes out by itself, at
//! once. Others take a lane; while all lanes are taken, they queue up, and the
//! next lane that is free takes all that wait, up to a bound, in one call. So
//! nothing waits at low load, and the more there is to do, the less each check
//! costs Redis and the network.
//!
//! Each call costs the server as much as some checks do, and of a fleet all send
//! theirs. So when answers take long, one lane goes on by itself, and others only
//! beside it when there is enough for a call: what waits meanwhile shares the next.
//!
//! Lanes are tasks of their own: a caller who leaves, or who does not look at
//! its answer, holds nobody up.
//!
//! Nor has a check a timer of its own. They come in the order of their
//! deadlines, and a call ends by the last of its own: so a lane is free before
//! those who wait for it are late. Who comes out of order, or waits in another
//! runtime than the lanes', watches the time itself.
//!
//! In a cluster a call may only hold keys of one slot. What a lane takes is
//! then several calls, sent together, whose answers come together.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use tokio::{runtime::Handle, task::JoinSet, time::timeout};

use super::{
    batch::Batch,
    call::{Deadline, Manner},
    node::{Counted, Node},
    reply::Found,
    waiting::{Queued, Waiting},
};
use crate::{StoreError, error::StoreErrorKind, store::finished::Finished};

/// Calls in flight on each connection: so that Redis has work while an answer
/// is on its way, and another is read here.
const LANES_PER_CONNECTION: usize = 3;
/// At 3 us of Redis each, less than half a millisecond in which nobody else is
/// served.
const MOST_PER_LANE: usize = 128;
/// Fewer cost Redis and the network more for each.
const LEAST_PER_LANE: usize = 16;

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
    /// One check is under way by itself.
    is_one_alone: bool,
    lanes_taken: usize,
    waiting: VecDeque<Queued>,
    /// The latest deadline of any that waited.
    latest: Option<Deadline>,
}

/// How a check is under way.
enum Entered {
    Alone(Alone),
    Queue { is_in_order: bool },
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

    fn state(&self) -> MutexGuard<'_, State> {
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

    fn give_up(&self, waiting: &Arc<Waiting>) -> Result<Found, StoreError> {
        if let Some(queued) = self.dispatch.withdraw(waiting) {
            return Err(queued.too_late());
        }
        // It may have been told since its time was over.
        let told = waiting.take();
        told.unwrap_or(Err(StoreError::new(StoreErrorKind::Timeout)))
    }

    /// By itself goes only who is in the lanes' runtime, where it ends if its
    /// caller leaves: timers of another may stand still.
    fn enter(self: &Arc<Self>, queued: Queued, is_here: bool) -> Entered {
        let mut state = self.dispatch.state();
        if is_here && !state.is_one_alone && state.lanes_taken == 0 {
            state.is_one_alone = true;
            return Entered::Alone(Alone(queued));
        }
        let deadline = queued.waiting.deadline;
        let latest = state
            .latest
            .map_or(deadline, |latest| deadline.later(latest));
        state.latest = Some(latest);
        state.waiting.push_back(queued);
        let is_lane_free = state.lanes_taken < self.dispatch.lanes
            && (state.lanes_taken == 0
                || state.waiting.len() >= LEAST_PER_LANE
                || !self.is_slow_for(deadline));
        state.lanes_taken += usize::from(is_lane_free);
        drop(state);
        if is_lane_free {
            let lane = Lane {
                node: Arc::clone(self),
                is_given_back: false,
            };
            self.dispatch.runtime.spawn(lane.serve());
        }
        Entered::Queue {
            is_in_order: !deadline.is_before(latest),
        }
    }
}

/// A check under way without a lane, in its caller's own task. If that caller
/// never looks again, all others still have the lanes.
struct Alone(Queued);

impl Alone {
    async fn call(self) -> Result<Found, StoreError> {
        let waiting = &self.0.waiting;
        let (node, sent) = (self.0.node(), Deadline::now());
        let call = node.call_for_one(&waiting.question, Manner::Plain, waiting.deadline);
        let answer = call.await;
        node.took(sent.elapsed(), answer.is_ok());
        answer
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.node().dispatch.state().is_one_alone = false;
    }
}

/// Serves the queue until it is empty.
struct Lane {
    node: Arc<Node>,
    is_given_back: bool,
}

impl Lane {
    async fn serve(mut self) {
        loop {
            // Those who were woken together ask together.
            after_those_who_are_ready().await;
            let Some(gathered) = self.gather() else { break };
            let mut slots = gathered.iter().map(|queued| queued.waiting.question.slot);
            let first = slots.next();
            if slots.all(|slot| Some(slot) == first) {
                Batch::of(gathered).decide(&self.node).await;
            } else {
                self.decide_by_slot(gathered).await;
            }
        }
    }

    async fn decide_by_slot(&self, gathered: Vec<Queued>) {
        let mut groups: Vec<(u16, Vec<Queued>)> = Vec::new();
        for queued in gathered {
            let slot = queued.waiting.question.slot;
            match groups.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, group)) => group.push(queued),
                None => groups.push((slot, vec![queued])),
            }
        }
        let mut calls = JoinSet::new();
        for (_, group) in groups {
            let node = Arc::clone(&self.node);
            calls.spawn(async move { Batch::of(group).decide(&node).await });
        }
        while calls.join_next().await.is_some() {}
    }

    /// What a lane leaves to the others is asked for while it waits for its
    /// own answer.
    fn share(&self) -> usize {
        let in_flight = self.node.in_flight();
        let share = in_flight.div_ceil(self.node.dispatch.lanes);
        share.clamp(LEAST_PER_LANE, MOST_PER_LANE)
    }

    /// Who waits, without those who left and those whose time is over. `None`:
    /// nobody, and the lane is given back.
    ///
    /// Nor those whose time is over before an answer can be here, while others
    /// have more of it. In an overload all would be such, otherwise: charged,
    /// and not answered in time. What is given back is sent even so. It needs no
    /// queue of its own, in which it would hold up who has less time: those before
    /// it have earlier deadlines, and make way when these come near.
    fn gather(&mut self) -> Option<Vec<Queued>> {
        let now = Deadline::now();
        let answered = now.and(self.node.answered_in());
        let (mut gathered, mut hasty, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let most = self.share();
        let mut state = self.node.dispatch.state();
        while gathered.len() < most {
            let Some(queued) = state.waiting.pop_front() else {
                break;
            };
            let deadline = queued.waiting.deadline;
            if queued.has_left() || deadline.is_over(now) {
                others.push(queued);
            } else if deadline.is_over(answered) && !queued.waiting.question.operation.is_back() {
                hasty.push(queued);
            } else {
                gathered.push(queued);
            }
        }
        if gathered.is_empty() {
            gathered = hasty.split_off(hasty.len().saturating_sub(most));
        }
        others.append(&mut hasty);
        if gathered.is_empty() {
            state.lanes_taken -= 1;
            self.is_given_back = true;
        }
        drop(state);
        for queued in others {
            queued.waiting.tell(Err(queued.too_late()));
        }
        (!gathered.is_empty()).then_some(gathered)
    }
}

/// Lets the tasks run that are ready now. Not by Tokio's way, which lets all
/// run that become so meanwhile, up to a bound.
async fn after_those_who_are_ready() {
    let mut is_behind = false;
    let behind = poll_fn(|cx| {
        if mem::replace(&mut is_behind, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    behind.await;
}

impl Drop for Lane {
    /// Before it was given back: the runtime is gone, and nobody will serve
    /// those who wait.
    fn drop(&mut self) {
        if !self.is_given_back {
            let mut state = self.node.dispatch.state();
            state.lanes_taken -= 1;
            let waiting = mem::take(&mut state.waiting);
            drop(state);
            drop(waiting);
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use fred::types::Builder;

    use super::*;
    use crate::store::{
        Operation,
        redis::{connection::Connections, key::KeyNames, node::Asker, question::Question},
    };

    #[tokio::test]
    async fn an_answer_that_came_at_the_end_of_its_time_is_taken() {
        let client = Builder::default_centralized().build().expect("a client");
        let names = KeyNames::new("tt".to_owned(), None).expect("names");
        let asker = Asker::new(names, 0, None);
        let node = Node::new(Handle::current(), Connections::given(client), 8, asker);
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
