//! A check that somebody waits for.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{
    call::Deadline,
    node::{Counted, Node},
    question::Question,
    reply::Found,
};
use crate::{StoreError, error::StoreErrorKind};

/// Held by who waits, and by whom it is on its way with: so whoever holds it
/// alone knows that the other has left.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) question: Question,
    pub(super) deadline: Deadline,
    answer: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Empty,
    /// Somebody looked, and is to be woken.
    Watched(Waker),
    Told(Result<Found, StoreError>),
    Taken,
}

impl Waiting {
    pub(super) fn new(question: Question, deadline: Deadline) -> Arc<Self> {
        Arc::new(Self {
            question,
            deadline,
            answer: Mutex::new(Slot::Empty),
        })
    }

    /// The first answer counts.
    pub(super) fn tell(&self, answer: Result<Found, StoreError>) {
        let mut slot = self.slot();
        if matches!(*slot, Slot::Told(_) | Slot::Taken) {
            return;
        }
        let before = mem::replace(&mut *slot, Slot::Told(answer));
        drop(slot);
        if let Slot::Watched(waker) = before {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<Found, StoreError>> {
        let mut slot = self.slot();
        if let Some(answer) = slot.take() {
            return Poll::Ready(answer);
        }
        match &mut *slot {
            Slot::Watched(waker) => waker.clone_from(cx.waker()),
            // Polled again after it was ready, which no caller may do.
            Slot::Taken => {}
            _ => *slot = Slot::Watched(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The answer, if it is there.
    pub(super) fn take(&self) -> Option<Result<Found, StoreError>> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn take(&mut self) -> Option<Result<Found, StoreError>> {
        if !matches!(self, Self::Told(_)) {
            return None;
        }
        match mem::replace(self, Self::Taken) {
            Self::Told(answer) => Some(answer),
            _ => None,
        }
    }
}

/// One that is not decided yet, in the queue or in a call. Whatever becomes of
/// it, its caller is told.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) waiting: Arc<Waiting>,
    /// How many calls were answered before.
    pub(super) answers: u64,
    /// It counts until it is decided, even when its caller has left.
    counted: Counted,
}

impl Queued {
    pub(super) fn new(waiting: &Arc<Waiting>, answers: u64, counted: Counted) -> Self {
        Self {
            waiting: Arc::clone(waiting),
            answers,
            counted,
        }
    }

    pub(super) fn has_left(&self) -> bool {
        Arc::strong_count(&self.waiting) == 1
    }

    /// Whether it gives back or renews what was taken.
    pub(super) fn is_refund(&self) -> bool {
        self.waiting.question.operation.is_refund_or_renewal()
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        self.counted.node()
    }

    /// What it means that its turn has not come: a flood, if others had theirs
    /// and the server did not stand still meanwhile.
    pub(super) fn too_late(&self) -> StoreError {
        let (node, deadline) = (self.node(), self.waiting.deadline);
        let stalled_at = node.dispatch.state().round_trip.stalled_at();
        let has_stalled = stalled_at.is_some() && stalled_at >= deadline.began(node.timeout());
        let is_silent = has_stalled || node.answers() == self.answers;
        if is_silent && !node.is_crowded(deadline) {
            StoreError::not_sent("no answer to the calls before it")
        } else {
            StoreError::new(StoreErrorKind::Overloaded)
        }
    }
}

impl Drop for Queued {
    /// If it was not told anything: the runtime that the store was built in is gone.
    fn drop(&mut self) {
        let gone = StoreErrorKind::Unavailable;
        self.waiting.tell(Err(StoreError::new(gone)));
    }
}
