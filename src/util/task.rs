//! Tasks that end with their owner.

use std::time::Duration;

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

/// The pause before work that has panicked starts again.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    /// Keeps work going as long as this lives. Starts it again if it panics.
    pub(crate) fn keep<F>(runtime: &Handle, work: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let again = runtime.clone();
        Self(runtime.spawn(async move {
            loop {
                let mut task = Self(again.spawn(work()));
                // Any end of the task will do.
                let _ = (&mut task.0).await;
                sleep(PAUSE).await;
            }
        }))
    }

    /// Returns whether the task has ended: on its own, or with its runtime.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
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
