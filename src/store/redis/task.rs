//! Tasks that end with their owner, and futures that need a runtime.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::JoinHandle,
    time::sleep,
};

use crate::StoreError;

/// The pause before work that has panicked starts again.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop<T>(pub(super) JoinHandle<T>);

impl AbortOnDrop<()> {
    /// Keeps work going as long as this lives. Starts it again if it panics.
    pub(super) fn keep<F>(runtime: &Handle, work: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let again = runtime.clone();
        Self(runtime.spawn(async move {
            loop {
                Self(again.spawn(work())).ended().await;
                sleep(PAUSE).await;
            }
        }))
    }
}

impl<T> AbortOnDrop<T> {
    async fn ended(mut self) {
        // Any end of the task will do.
        let _ = (&mut self.0).await;
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pin_project! {
    /// Polls a future in the store's runtime if the caller is in none.
    ///
    /// If that runtime has one thread, nothing may drive its timers then: the future fails
    /// instead.
    #[must_use]
    pub(super) struct InRuntime<F> {
        runtime: Handle,
        #[pin]
        future: F,
    }
}

impl<F> InRuntime<F> {
    pub(super) const fn new(runtime: Handle, future: F) -> Self {
        Self { runtime, future }
    }
}

impl<T, F: Future<Output = Result<T, StoreError>>> Future for InRuntime<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if Handle::try_current().is_ok() {
            return this.future.poll(cx);
        }
        if this.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            let why = "it was asked outside of a Tokio runtime, and its own has one thread only";
            return Poll::Ready(Err(StoreError::not_sent(why)));
        }
        let _entered = this.runtime.enter();
        this.future.poll(cx)
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_background_task_restarts_after_a_panic_and_ends_with_its_owner() {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let kept = AbortOnDrop::keep(&Handle::current(), move || {
            let begun = count.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(begun >= 3, "on purpose");
                std::future::pending::<()>().await;
            }
        });
        sleep(10 * PAUSE).await;
        assert_eq!(begun.load(Ordering::Relaxed), 4);
        let tasks = || Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks(), 2);
        drop(kept);
        sleep(PAUSE).await;
        assert_eq!(tasks(), 0);
    }
}
