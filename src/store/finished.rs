//! A call that is waited for to its end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

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
