//! [`Awaited`]: counts a check whose answer takes time.

use std::{sync::Arc, task::Poll};

use super::{observe::RequestResult, recorder::Recorder};
use crate::{Decision, StoreError, telemetry::CheckSpan};

/// A check that waits for its store, or for room. It is counted once: when it ends, or as
/// cancelled if it is dropped before.
#[derive(Debug)]
pub(crate) struct Awaited {
    recorder: Arc<Recorder>,
    span: CheckSpan,
    is_counted: bool,
}

impl Awaited {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        let span = CheckSpan::new(&recorder.name);
        Self {
            recorder,
            span,
            is_counted: false,
        }
    }

    /// Polls what is awaited, within the span.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        self.span.in_scope(poll)
    }

    /// Counts the check by how it ended.
    pub(crate) fn ended(&mut self, answer: Result<&Decision, &StoreError>) {
        self.is_counted = true;
        match answer {
            Ok(decision) => {
                let (verdict, source) = (RequestResult::of(decision), decision.source().name());
                self.span.decided(verdict.as_str(), source, decision);
                self.recorder.decided(decision);
            }
            Err(error) => {
                self.span.ended(RequestResult::of_error(error).as_str());
                self.recorder.failed(error);
            }
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.is_counted {
            self.span.ended(RequestResult::Cancelled.as_str());
            self.recorder.cancelled();
        }
    }
}
