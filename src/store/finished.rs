//! A call that is waited for to its end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

#[cfg(feature = "redis")]
use super::Answer;

/// A call that goes on by itself when its caller leaves: how it ends tells of
/// the server.
pub(super) struct Finished<F: Future<Output: Send> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> Finished<F> {
    pub(super) fn of(call: F, runtime: Handle) -> Self {
        Self {
            call: Some(Box::pin(call)),
            runtime,
        }
    }
}

/// The same from the first poll on: before that, nothing was asked.
pub(super) async fn to_its_end<F>(call: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => Finished::of(call, runtime).await,
        Err(_) => call.await,
    }
}

/// An answer that comes whether its caller waits for it or not, once asked for.
#[cfg(feature = "redis")]
pub(super) fn finished<T: Send + 'static>(answer: Answer<T>) -> Answer<T> {
    match answer {
        Answer::Later(answer) => Answer::Later(Box::pin(to_its_end(answer))),
        now => now,
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finished<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(call) = &mut self.call else {
            // Polled again after it was ready, which no caller may do.
            return Poll::Pending;
        };
        let found = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(found)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finished<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move { drop(call.await) });
        }
    }
}
