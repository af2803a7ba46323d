//! The state that the users of a store share in this process.

pub(crate) mod bans;
pub(crate) mod permits;
pub(crate) mod unsettled;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::runtime::Handle;

use self::{bans::Bans, permits::Holders, unsettled::Unsettled};
use super::{Answer, Check, Store, health::Health, tasks::Tasks};
use crate::{Clock, Decision};

pub(crate) struct StoreContext {
    /// A number that no other store of the process has or had. An address is not enough: a later
    /// store may get the address of one that was dropped.
    pub(super) id: usize,
    pub(super) health: Health,
    pub(super) tasks: Tasks,
    /// The permits that this process holds.
    pub(super) holders: Holders,
    /// The units that requests of this process hold.
    pub(super) unsettled: Unsettled,
    /// The bans, pauses and strikes that it knows.
    pub(super) bans: Arc<Bans>,
}

/// A store, and what its users share about it.
#[derive(Clone, Debug)]
pub(crate) struct SharedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) context: Arc<StoreContext>,
    /// Whether calls cost a round trip, so that fewer are better.
    pub(super) is_remote: bool,
}

impl SharedStore {
    /// Checks, and records how the store fares.
    pub(crate) fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let context = Arc::clone(&self.context);
        let answer = self.store.check(check);
        answer.map(move |answer| {
            context.health.record(&answer);
            answer
        })
    }

    /// Runs work for the store in the background.
    pub(crate) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.context.tasks.spawn(runtime, work);
    }
}

impl StoreContext {
    /// Creates the context of a store with a clock. `None`: that of the system.
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let tasks = Tasks::default();
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            health: Health::default(),
            bans: Bans::new(clock, tasks.clone()),
            tasks,
            holders: Holders::default(),
            unsettled: Unsettled::default(),
        }
    }
}

impl Default for StoreContext {
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for StoreContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreContext")
    }
}
