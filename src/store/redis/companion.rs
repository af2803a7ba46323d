//! Checks that travel in the call of another check, their carrier.
//!
//! A call may have any number of checks, and decides each by itself. So the checks of one
//! request share a call from the start: the first of them is sent as any check is, and takes
//! the others along. They have no deadline, no place in a queue and no retry of their own. If
//! the carrier fails, they fail with it. If it is redirected, they go along, unless it must then
//! be alone in its call.
//!
//! A call goes on although the carrier's caller has left. So if nobody answers a companion, its
//! answer is how the last call with it ended.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::{sync::oneshot, task::unconstrained};

use super::{reply::CheckResult, request::ScriptRequest};
use crate::{
    Decision, StoreError,
    error::StoreErrorKind,
    store::{
        StoreFuture,
        denial_cache::{PendingCheck, record_decision},
    },
    util::lock::lock,
};

/// A check that travels in the call of another.
pub(super) struct Companion {
    pub(super) request: ScriptRequest,
    /// `None` once it is answered.
    waiting: Mutex<Option<Waiting>>,
}

/// What an answer is for.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<Result<Decision, StoreError>>,
    pub(super) asking: Option<PendingCheck>,
    last_call: LastCall,
}

/// What became of the last call with a companion.
enum LastCall {
    /// There was none.
    NotSent,
    /// It may run.
    UnderWay,
    Failed(StoreError),
}

impl Companion {
    /// Makes a companion, and the future of its answer.
    pub(super) fn new(
        request: ScriptRequest,
        asking: Option<PendingCheck>,
    ) -> (Self, StoreFuture<Decision>) {
        let (answer, receiver) = oneshot::channel();
        let companion = Self {
            request,
            waiting: Mutex::new(Some(Waiting {
                answer,
                asking,
                last_call: LastCall::NotSent,
            })),
        };
        // It is there when the carrier's answer is, however much its task has done by then.
        let receiver = unconstrained(receiver);
        let answer = async move {
            let answer = receiver.await;
            // It was sent apart, and the runtime of the store is gone.
            answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
        };
        (companion, Box::pin(answer))
    }

    /// Takes what an answer is for, unless the companion was answered.
    pub(super) fn take_waiting(&self) -> Option<Waiting> {
        lock(&self.waiting).take()
    }

    /// Records that a call with it is sent from now on.
    pub(super) fn record_sent(&self) {
        self.record(LastCall::UnderWay);
    }

    /// Records how a call with it failed. The carrier may be sent again, if nothing ran.
    pub(super) fn record_failure(&self, error: StoreError) {
        self.record(LastCall::Failed(error));
    }

    fn record(&self, last_call: LastCall) {
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.last_call = last_call;
        }
    }

    /// Answers with what the script found.
    pub(super) fn answer(&self, found: Result<CheckResult, StoreError>) {
        let Some(Waiting { answer, asking, .. }) = self.take_waiting() else {
            return;
        };
        let decided = found.map(|found| self.request.decision(&found));
        if let Ok(decision) = &decided {
            record_decision(asking, decision);
        }
        // A caller that left was charged, as any caller whose answer is lost.
        let _ = answer.send(decided);
    }
}

impl Drop for Companion {
    /// Answers for a carrier whose caller has left.
    fn drop(&mut self) {
        let Some(waiting) = self.take_waiting() else {
            return;
        };
        let _ = waiting.answer.send(Err(match waiting.last_call {
            LastCall::NotSent => StoreError::not_sent("the check that carries it was dropped"),
            LastCall::UnderWay => StoreError::unavailable("the call that carries it was dropped"),
            LastCall::Failed(error) => error,
        }));
    }
}

impl fmt::Debug for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// The companions of one check. Mostly there are none, which costs nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Companions(Option<Arc<[Companion]>>);

impl Companions {
    pub(super) fn as_slice(&self) -> &[Companion] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns how many checks the carrier and they are.
    pub(super) fn with_carrier(&self) -> usize {
        1 + self.as_slice().len()
    }

    /// Returns them, or none if they were sent apart from their carrier.
    pub(super) fn while_waiting(&self) -> Self {
        let is_waiting = |one: &Companion| lock(&one.waiting).is_some();
        match self.as_slice().iter().any(is_waiting) {
            true => self.clone(),
            false => Self::default(),
        }
    }

    /// Fails those that are not answered yet, as their carrier failed.
    pub(super) fn fail(&self, error: &StoreError) {
        for companion in self.as_slice() {
            if let Some(waiting) = companion.take_waiting() {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}

impl FromIterator<Companion> for Companions {
    fn from_iter<T: IntoIterator<Item = Companion>>(companions: T) -> Self {
        let companions: Vec<Companion> = companions.into_iter().collect();
        Self((!companions.is_empty()).then(|| companions.into()))
    }
}
