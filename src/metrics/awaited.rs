//! [`Awaited`]: counts a check whose answer takes time.

use std::{ops::Deref, task::Poll};

use super::{
    observe::RequestResult,
    recorder::{Recorder, result_of, result_of_error, source_of},
};
use crate::{Decision, StoreError, telemetry::CheckSpan};

/// A check that waits for its store, or for room. It is counted once: when it ends, or as
/// cancelled if it is dropped before.
///
/// `P` points to the settings of the layer or limiter, which hold the recorder.
#[derive(Debug)]
pub(crate) struct Awaited<P>
where
    P: Deref,
    P::Target: AsRef<Recorder>,
{
    settings: P,
    span: CheckSpan,
    is_counted: bool,
}

impl<P> Awaited<P>
where
    P: Deref,
    P::Target: AsRef<Recorder>,
{
    pub(crate) fn new(settings: P) -> Self {
        let span = CheckSpan::new((*settings).as_ref().name());
        Self {
            settings,
            span,
            is_counted: false,
        }
    }

    #[cfg(feature = "http")]
    pub(crate) const fn settings(&self) -> &P {
        &self.settings
    }

    /// Polls what is awaited, within the span.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        self.span.in_scope(poll)
    }

    /// Counts the check by how it ended.
    pub(crate) fn ended(&mut self, answer: Result<&Decision, &StoreError>) {
        self.is_counted = true;
        let recorder = (*self.settings).as_ref();
        match answer {
            Ok(decision) => {
                let (verdict, source) = (result_of(decision), source_of(decision));
                self.span.decided(verdict.as_str(), source, decision);
                recorder.decided(decision);
            }
            Err(error) => {
                self.span.ended(result_of_error(error).as_str());
                recorder.failed(error);
            }
        }
    }
}

impl<P> Drop for Awaited<P>
where
    P: Deref,
    P::Target: AsRef<Recorder>,
{
    fn drop(&mut self) {
        if !self.is_counted {
            self.span.ended(RequestResult::Cancelled.as_str());
            (*self.settings).as_ref().cancelled();
        }
    }
}
