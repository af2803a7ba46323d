//! Futures that run to their end although their caller drops them.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::runtime::Handle;

/// What is left of a call, which continues in a task of its own if this is dropped: its result
/// tells whether the server works.
struct Rest<F: Future<Output: Send> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    runtime: Handle,
}

/// Runs a call to its end. It continues on `runtime` if its caller leaves, even if it was never
/// polled.
pub(crate) fn run_on<F>(runtime: Handle, call: F) -> impl Future<Output = F::Output> + Send
where
    F: Future<Output: Send> + Send + 'static,
{
    let call = Some(Box::pin(call));
    let mut rest = Rest { call, runtime };
    async move {
        let output = poll_fn(|cx| match &mut rest.call {
            Some(call) => call.as_mut().poll(cx),
            None => Poll::Pending,
        });
        let output = output.await;
        drop(rest.call.take());
        output
    }
}

/// Runs a call to its end once this future has been polled. Before that it asks nothing.
pub(crate) async fn run_to_completion<F>(call: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) => run_on(runtime, call).await,
        Err(_) => call.await,
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Rest<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(async move { drop(call.await) });
        }
    }
}
