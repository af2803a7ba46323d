//! The sampler: it looks at the numbers once a second, while an operator looks at the page. It starts
//! at the first look, and ends 15 minutes after the last one. There is no task before and after.

use std::{
    sync::{Arc, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tower_throttle::{inspect::Inspect, metrics::Deltas};

use super::{
    recent::Totals,
    samples::{Sample, Samples},
};
use crate::shared::Shared;

/// The pause between two samples.
const SECOND: Duration = Duration::from_secs(1);
/// How long sampling continues after the last look.
const LINGER: Duration = Duration::from_secs(15 * 60);

impl Shared {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an operator looks, and begins to sample unless that is under way. Outside of a
    /// Tokio runtime nothing is sampled.
    pub(crate) fn look(self: &Arc<Self>) {
        let mut state = self.samples();
        state.last_look = Some(Instant::now());
        let is_under_way = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if let (false, Ok(runtime)) = (is_under_way, Handle::try_current()) {
            state.clear();
            state.task = Some(runtime.spawn(run(Arc::downgrade(self))));
        }
    }

    /// Sums up what happened in this time before now. `None` if there was no look before.
    pub(crate) fn totals(&self, time: Duration) -> Option<Totals> {
        self.samples().totals(time)
    }

    /// Returns the samples after the one of this time, as JSON. If that is not kept: all.
    pub(super) fn samples_after(&self, at_ms: u64) -> String {
        self.samples().after(at_ms)
    }
}

/// Samples until there was no look for a while, or the page is gone.
async fn run(page: Weak<Shared>) {
    let (mut deltas, mut last) = (Deltas::default(), None);
    while let Some(page) = page.upgrade() {
        let last_look = page.samples().last_look;
        if last_look.is_none_or(|last| last.elapsed() >= LINGER) {
            page.samples().clear();
            return;
        }
        let (inspected, control) = (page.targets.all(), &page.control);
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        let (limiters, stores) = deltas.next(&snapshots);
        let now = Instant::now();
        // The first look has nothing to compare with.
        if let Some(last) = last.replace(now) {
            let version = control.as_ref().map_or(0, |one| one.status().version);
            let sample = Sample::new(now - last, &limiters, &stores, version);
            page.samples().keep(sample);
        }
        drop(page);
        sleep(SECOND).await;
    }
}
