//! Takes who waits, and asks for them in one call after another.
//!
//! Lanes are tasks of their own: a caller who leaves, or who does not look at
//! its answer, holds nobody up.
//!
//! In a cluster a call may only hold keys of one slot. What a lane takes is
//! then several calls, sent together, whose answers come together.

use std::{future::poll_fn, mem, sync::Arc, task::Poll};

use tokio::task::JoinSet;

use super::{batch::Batch, call::Deadline, dispatch::State, node::Node, waiting::Queued};

/// At 3 us of Redis each, less than half a millisecond in which nobody else is
/// served.
const MOST_PER_LANE: usize = 128;
/// Fewer cost Redis and the network more for each.
pub(super) const LEAST_PER_LANE: usize = 16;

/// Serves the queue until it is empty.
pub(super) struct Lane {
    node: Arc<Node>,
    is_given_back: bool,
}

impl Lane {
    pub(super) const fn of(node: Arc<Node>) -> Self {
        Self {
            node,
            is_given_back: false,
        }
    }

    pub(super) async fn serve(mut self) {
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
    fn share(&self, state: &State) -> usize {
        let lanes = self.node.dispatch.lanes_beside(state);
        let share = self.node.in_flight().div_ceil(lanes);
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
        let mut state = self.node.dispatch.state();
        let most = self.share(&state);
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
