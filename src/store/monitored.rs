//! A store whose failures are logged.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Answer, Check, Store, health::Health, tasks::Tasks};
use crate::Decision;

/// A store, what was logged about its failures, and its background tasks. Clones
/// share all three.
#[derive(Clone, Debug)]
pub(crate) struct MonitoredStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) health: Arc<Health>,
    pub(super) tasks: Tasks,
}

impl MonitoredStore {
    /// Asks the store, and logs whether it fails.
    pub(crate) fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        match self.store.check(check) {
            Answer::Now(answer) => {
                self.health.record(&answer);
                Answer::Now(answer)
            }
            Answer::Later(answer) => {
                let health = Arc::clone(&self.health);
                Answer::Later(Box::pin(async move {
                    let answer = answer.await;
                    health.record(&answer);
                    answer
                }))
            }
        }
    }

    /// Returns how many times the store has replied in its outages.
    pub(super) fn replies(&self) -> u64 {
        self.health.replies()
    }

    /// Waits for a reply of a store that has failed, beyond the first `before` of them. Never
    /// returns if the failures were only overload or unexpected data.
    pub(super) async fn reply_after(&self, before: u64) {
        self.health.reply_after(before).await;
    }

    /// Runs work for the store in the background.
    pub(super) fn spawn<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(runtime, work);
    }
}
