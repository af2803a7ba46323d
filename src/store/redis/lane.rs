//! Takes who waits, and asks for them in one call after another.
//!
//! Lanes are tasks of their own: a caller who leaves, or who does not look at
//! its answer, holds nobody up.
//!
//! In a cluster a call may only hold keys of one slot. What a lane takes is
//! then several calls, sent together, whose answers come together.

use std::{future::poll_fn, mem, sync::Arc, task::Poll, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{batch::Batch, call::Deadline, dispatch::State, node::Node, waiting::Queued};

/// At 3 us of Redis each, less than half a millisecond in which nobody else is
/// served.
const MOST_PER_LANE: usize = 128;
/// Half as many: no check waits long behind them at the server.
pub(super) const REFUNDS_PER_LANE: usize = MOST_PER_LANE / 2;
/// Fewer cost Redis and the network more for each.
pub(super) const LEAST_PER_LANE: usize = 16;

/// How long a refund is kept and sent after its deadline: what was taken must get
/// back in any flood.
const REFUND_TIME: Duration = Duration::from_secs(1);

/// What a lane carries.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// `pause`: how long it waits before it begins.
    Checks {
        pause: Duration,
    },
    Refunds,
}

/// Serves a queue until it is empty.
pub(super) struct Lane {
    node: Arc<Node>,
    load: Load,
    is_given_back: bool,
}

impl Lane {
    pub(super) const fn of(node: Arc<Node>, load: Load) -> Self {
        Self {
            node,
            load,
            is_given_back: false,
        }
    }

    pub(super) async fn serve(mut self) {
        if let Load::Checks { pause } = self.load {
            // A sleep of no time is one of a millisecond.
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        loop {
            // Those who were woken together ask together.
            after_those_who_are_ready().await;
            let gathered = match self.load {
                Load::Checks { .. } => self.gather(),
                Load::Refunds => self.gather_refunds(),
            };
            let Some(gathered) = gathered else { break };
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

    /// Takes what waits, without checks whose caller left or whose time is over.
    /// `None`: nothing waits, and the lane is given back.
    ///
    /// Nor those whose time is over before an answer can be here, while others
    /// have more of it. In an overload all would be such, otherwise: charged,
    /// and not answered in time.
    fn gather(&mut self) -> Option<Vec<Queued>> {
        let now = Deadline::now();
        let (mut gathered, mut hasty, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = self.node.dispatch.state();
        if let Load::Checks { pause } = &mut self.load {
            if !mem::take(pause).is_zero() {
                state.is_paced = false;
            }
        }
        let answered = now.and(state.round_trip.expected());
        let most = self.share(&state);
        while gathered.len() < most {
            let Some(queued) = state.waiting.pop_front() else {
                break;
            };
            let deadline = queued.waiting.deadline;
            if queued.has_left() || deadline.is_over(now) {
                others.push(queued);
            } else if deadline.is_over(answered) {
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
        } else {
            state.sent_at = Instant::now();
        }
        drop(state);
        for queued in others {
            queued.waiting.tell(Err(queued.too_late()));
        }
        (!gathered.is_empty()).then_some(gathered)
    }

    /// The same of refunds, which are sent whether their callers wait or not.
    fn gather_refunds(&mut self) -> Option<Vec<Queued>> {
        let now = Deadline::now();
        let mut others = Vec::new();
        let mut state = self.node.dispatch.state();
        let mut gathered = Vec::new();
        while gathered.len() < REFUNDS_PER_LANE {
            let Some(queued) = state.refunds.pop_front() else {
                break;
            };
            let is_kept = !queued.waiting.deadline.and(REFUND_TIME).is_over(now);
            if is_kept { &mut gathered } else { &mut others }.push(queued);
        }
        if gathered.is_empty() {
            state.refund_lanes -= 1;
            self.is_given_back = true;
        } else if !state.refunds.is_empty() {
            state.flooded_at = Some(Instant::now());
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
    /// Before it was given back: the runtime is gone, and no lane will serve
    /// those who wait.
    fn drop(&mut self) {
        if !self.is_given_back {
            let mut state = self.node.dispatch.state();
            let waiting = match self.load {
                Load::Checks { .. } => {
                    state.lanes_taken -= 1;
                    state.is_paced = false;
                    mem::take(&mut state.waiting)
                }
                Load::Refunds => {
                    state.refund_lanes -= 1;
                    mem::take(&mut state.refunds)
                }
            };
            drop(state);
            drop(waiting);
        }
    }
}
