//! Futures that need a runtime with timers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{StoreError, util::runtime::runtime_with_timers};

pin_project! {
    /// Polls a future in the store's runtime if the caller is in none, or in one without timers.
    ///
    /// If the store's runtime has one thread, nothing may drive its timers then: the future fails
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
        // The store's runtime has timers, or the store would not have been built.
        let is_of_store = Handle::try_current().is_ok_and(|here| here.id() == this.runtime.id());
        if is_of_store || runtime_with_timers().is_some() {
            return this.future.poll(cx);
        }
        if this.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            let why = "it was asked outside of a Tokio runtime with timers, and its own has one thread only";
            return Poll::Ready(Err(StoreError::not_sent(why)));
        }
        let _entered = this.runtime.enter();
        this.future.poll(cx)
    }
}
