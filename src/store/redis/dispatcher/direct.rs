//! Checks that are sent without a worker.

use std::sync::Arc;

use super::{Dispatcher, InFlight, job::Answered};
use crate::store::redis::{SendMode, deadline::Deadline, request::ScriptRequest};

/// A check that is sent in its caller's own task. If that task never polls it again, all
/// others still have the workers.
pub(super) struct DirectCall {
    pub(super) request: Arc<ScriptRequest>,
    pub(super) deadline: Deadline,
    pub(super) _in_flight: InFlight,
    pub(super) place: DirectPlace,
}

impl DirectCall {
    pub(super) async fn run(self) -> Answered {
        let server = &self.place.0.server;
        let mode = SendMode::Batched;
        server.eval_alone(&self.request, mode, self.deadline).await
    }
}

/// Counts a direct call as long as it is under way.
pub(super) struct DirectPlace(pub(super) Arc<Dispatcher>);

impl Drop for DirectPlace {
    /// Leaves the place to a worker.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.direct -= 1;
        self.0.start_worker(state);
    }
}
