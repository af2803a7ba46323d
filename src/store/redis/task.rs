//! Futures that need a runtime.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::StoreError;

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
