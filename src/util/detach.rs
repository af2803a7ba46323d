//! Futures that run to their end although their caller drops them.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

/// A call that continues in a task of its own if its caller drops it: its result tells
/// whether the server works.
pub(crate) struct RunToCompletion<F: Future<Output: Send> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> RunToCompletion<F> {
    /// Wraps a call. It continues on `runtime`, even if it was never polled.
    pub(crate) fn new(call: F, runtime: Handle) -> Self {
        Self {
            call: Some(Box::pin(call)),
            runtime,
        }
    }
}

/// Runs a call to its end once this future has been polled. Before that it asks nothing.
pub(crate) async fn run_to_completion<F>(call: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => RunToCompletion::new(call, runtime).await,
        Err(_) => call.await,
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for RunToCompletion<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        #[expect(clippy::expect_used, reason = "as futures of the compiler's do")]
        let call = self.call.as_mut().expect("polled after it was ready");
        let output = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for RunToCompletion<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move { drop(call.await) });
        }
    }
}
