//! [`Job`]: a check that waits for a worker, or is under way.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::InFlight;
use crate::{
    StoreError,
    store::redis::{
        deadline::Deadline, reply::CheckResult, request::ScriptRequest, server::Server,
    },
};

/// A check that is not decided yet. If it is dropped unanswered, the runtime of the store
/// is gone.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) request: Arc<ScriptRequest>,
    pub(super) deadline: Deadline,
    pub(super) answer: Option<oneshot::Sender<Answered>>,
    /// How many calls had been answered when it came.
    pub(super) answers_before: u64,
    /// It counts until it is decided, even if its caller has left.
    pub(super) _in_flight: InFlight,
}

pub(super) type Answered = Result<CheckResult, StoreError>;

impl Job {
    /// Returns whether the caller has dropped its future.
    pub(super) fn has_left(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(oneshot::Sender::is_closed)
    }

    pub(super) fn answer_too_late(self, server: &Server) {
        answer(
            self.answer,
            Err(server.too_late(self.deadline, self.answers_before)),
        );
    }
}

/// Answers a caller, unless it was answered before. A caller that has left was charged, as
/// any caller whose answer is lost.
pub(super) fn answer(sender: Option<oneshot::Sender<Answered>>, answered: Answered) {
    if let Some(sender) = sender {
        let _ = sender.send(answered);
    }
}
