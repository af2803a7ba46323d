//! Work for a store that continues after its caller has left.

use std::{pin::Pin, sync::Arc};

use tokio::{runtime::Handle, sync::watch};

use crate::util::on_drop::OnDrop;

/// Counts tasks. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<watch::Sender<usize>>);

impl Tasks {
    pub(crate) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.0.send_modify(|under_way| *under_way += 1);
        let tasks = Arc::clone(&self.0);
        let ended = OnDrop::new(move || tasks.send_modify(|under_way| *under_way -= 1));
        // Boxed, so a program has the code of one task, and not of each kind of work: 50 to 100 kB.
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
        runtime.spawn(async move {
            let _ended = ended;
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
