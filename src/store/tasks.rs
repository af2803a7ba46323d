//! Work for a store that continues after its caller has left.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::watch};

/// Counts tasks. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Tasks(Arc<watch::Sender<usize>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Tasks {
    pub(crate) fn spawn<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.send_modify(|under_way| *under_way += 1);
        let counted = Counted(self.clone());
        runtime.spawn(async move {
            let _counted = counted;
            work.await;
        });
    }

    /// Returns how many tasks are under way.
    pub(crate) fn under_way(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until no task is under way.
    #[cfg(feature = "redis")]
    pub(crate) async fn are_done(&self) {
        // An error means that no task counts anymore.
        let _ = self
            .0
            .subscribe()
            .wait_for(|under_way| *under_way == 0)
            .await;
    }
}

struct Counted(Tasks);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|under_way| *under_way -= 1);
    }
}
