//! Units that requests of this process hold in a store, until they are settled.
//!
//! A hold is settled once: the first settlement wins, and it runs at most once. [`gathered`] merges
//! settlements that no caller waits for before it sends them to a remote store. A hold that outlives
//! the lifetime of its policy is moved into the present generation, by one call for all that this
//! process holds in that generation of a bucket. A call without a reply is repeated until the
//! generation is about to lapse. Then the hold is left to the store, which charges it.

mod gathered;
mod held;
mod renewal;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};

use self::gathered::{Gathered, Group};
pub(crate) use self::held::Held;
use crate::{
    metrics::{counts::Tally, settlements::Settlements},
    util::{lock::lock, random::random_between, runtime::runtime_with_timers},
};

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// All that is held is charged.
    Full,
    /// Nothing is charged.
    Release,
    /// This many units are charged, which may be more than are held.
    Units(u64),
}

impl Settlement {
    /// Returns how many units are charged, if `held` are held.
    pub(crate) const fn units(self, held: u64) -> u64 {
        match self {
            Self::Full => held,
            Self::Release => 0,
            Self::Units(units) => units,
        }
    }
}

/// The holds of this process in one store that are not settled.
pub(crate) struct Unsettled {
    units: AtomicU64,
    results: Tally<5>,
    /// The part of the elder half of a hold's life that passes before it is extended. It differs
    /// between processes, so that they do not all extend their holds of a bucket together.
    delayed_part: f64,
    gathered: Arc<Gathered>,
    queue: Mutex<Queue>,
    /// A hold is due before the renewing task wakes.
    is_earlier: Notify,
}

/// The instant at which a hold is extended, and its number.
type Place = (Instant, u64);

#[derive(Default)]
struct Queue {
    next: u64,
    by_due: BTreeMap<Place, Arc<Held>>,
    /// When the renewing task wakes. `None`: there is none.
    wakes_at: Option<Instant>,
}

impl Default for Unsettled {
    fn default() -> Self {
        Self {
            units: AtomicU64::new(0),
            results: Tally::default(),
            delayed_part: random_between(0.1, 0.25),
            gathered: Arc::default(),
            queue: Mutex::default(),
            is_earlier: Notify::new(),
        }
    }
}

impl Unsettled {
    /// Returns how many units are held, of all buckets.
    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }

    /// Returns how the holds that were settled have ended.
    pub(crate) fn settlements(&self) -> Settlements {
        Settlements::from_array(self.results.load())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Extends a hold at this instant, unless it is removed before.
    fn push(&self, held: &Arc<Held>, due: Instant, runtime: &Handle) -> Place {
        let mut queue = self.queue();
        queue.next += 1;
        let place = (due, queue.next);
        queue.by_due.insert(place, Arc::clone(held));
        let wakes_at = queue.wakes_at;
        if wakes_at.is_none_or(|wakes_at| due < wakes_at) {
            queue.wakes_at = Some(due);
        }
        drop(queue);
        match wakes_at {
            None => renewal::start(&held.store.context, runtime, Vec::new()),
            Some(wakes_at) if due < wakes_at => self.is_earlier.notify_one(),
            Some(_) => {}
        }
        place
    }

    /// Sends a settlement that no caller waits for: to a remote store together with others.
    fn send_unawaited(&self, due: Group, is_remote: bool) {
        match is_remote.then(runtime_with_timers).flatten() {
            Some(runtime) => self.gathered.add(due, &runtime),
            None => due.send_alone(),
        }
    }

    fn remove(&self, place: Place) {
        let removed = self.queue().by_due.remove(&place);
        // Dropped without the lock: this may be the last user of the store.
        drop(removed);
    }

    /// Returns when the first hold is due. `None`: there is none, so the renewing task ends.
    fn next_due(&self) -> Option<Instant> {
        let mut queue = self.queue();
        queue.wakes_at = queue.by_due.keys().next().map(|(due, _)| *due);
        queue.wakes_at
    }

    /// Takes out the holds that are due now, and those that are nearly so.
    fn take_due(&self, now: Instant) -> Vec<Arc<Held>> {
        let mut queue = self.queue();
        let mut due = Vec::new();
        while let Some(first) = queue.by_due.first_entry() {
            if first.key().0 > now + first.get().slack() {
                break;
            }
            due.push(first.remove());
        }
        due
    }
}
