//! Futures that need a runtime with timers.

use std::{
    cell::Cell,
    panic::catch_unwind,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{
    runtime::{Handle, Id, RuntimeFlavor},
    time::sleep,
};

use crate::StoreError;

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

thread_local! {
    /// The runtime that this thread was last found in, and whether it has timers.
    static FOUND: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Returns the runtime of the caller, if it has timers.
pub(super) fn runtime_with_timers() -> Option<Handle> {
    let here = Handle::try_current().ok()?;
    let known = FOUND.get().filter(|(id, _)| *id == here.id());
    let has_timers = match known {
        Some((_, has_timers)) => has_timers,
        None => {
            // Tokio tells by a panic only, which is reported. So a thread asks when it is in another
            // runtime than before.
            let has_timers = catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok();
            FOUND.set(Some((here.id(), has_timers)));
            has_timers
        }
    };
    has_timers.then_some(here)
}
