//! The callers of one store.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, sync::Notify};

use super::entry::{Entry, Grant, Swept, Trip};
use crate::{Decision, StoreError, charge::Charge, clock, store::local::Local};

/// What is known of callers whose policies lease: at most 4,096 at a time. One
/// that finds no room is decided upon by the server, until others have stopped asking.
pub(crate) struct Leases {
    sets: Box<[Mutex<Set>]>,
    local: Local,
    runtime: Handle,
    is_swept: AtomicBool,
    is_closed: AtomicBool,
    /// Told of each trip that came home.
    arrivals: Notify,
}

/// Callers whose hashes lead to the same place.
#[derive(Default)]
struct Set {
    entries: Vec<(Id, Entry)>,
    /// Of their buckets, those under way: no trip sets out meanwhile.
    resets: u32,
}

/// 128 bits of a keyed hash: whoever does not know the process's key cannot make two callers meet.
pub(super) type Id = (u64, u64);

const SETS: usize = 512;
const ENTRIES: usize = 8;

/// What came of a question.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) id: Id,
    /// From what is held.
    pub(super) grant: Option<Grant>,
    pub(super) trip: Option<Box<Trip>>,
    /// Somebody must sweep from now on.
    pub(super) is_new: bool,
}

impl Leases {
    pub(crate) fn new(local: Local, runtime: Handle) -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            local,
            runtime,
            is_swept: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            arrivals: Notify::new(),
        }
    }

    pub(super) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn ask(&self, leg: &Charge<'_>) -> Seen {
        let id = self.id(leg);
        let Some(mut set) = self.set(id) else {
            return Seen::default();
        };
        // Both under the lock: an entry sees time go forwards, and none is
        // made once all were closed.
        let now_us = self.now_us();
        let mut seen = Seen {
            id,
            ..Seen::default()
        };
        if self.is_closed.load(Ordering::Relaxed) {
            return seen;
        }
        let Set { entries, resets } = &mut *set;
        let entry = match entries.iter().position(|(other, _)| *other == id) {
            Some(place) => entries.get_mut(place),
            None if entries.len() < ENTRIES => {
                seen.is_new = true;
                entries.push((id, Entry::default()));
                entries.last_mut()
            }
            None => None,
        };
        if let Some((_, entry)) = entry {
            seen.grant = entry.take(leg, now_us);
            if *resets == 0 {
                seen.trip = entry.next_trip(leg, now_us).map(Box::new);
            }
        }
        seen
    }

    pub(super) fn told(&self, id: Id, cost: u64, answer: &Result<Decision, StoreError>) {
        if let Some(mut set) = self.set(id) {
            let now_us = self.now_us();
            if let Some(entry) = set.entry(id) {
                entry.told(cost, answer, now_us);
            }
        }
    }

    pub(super) fn arrived(
        &self,
        id: Id,
        trip: Trip,
        answer: &Result<Decision, StoreError>,
    ) -> Option<Trip> {
        let mut set = self.set(id)?;
        let (now_us, is_reset) = (self.now_us(), set.resets > 0);
        let entry = set.entry(id)?;
        entry.arrived(trip, answer, self.is_closed.load(Ordering::Relaxed));
        let next = if is_reset {
            None
        } else {
            entry.give_back(now_us)
        };
        drop(set);
        self.arrivals.notify_waiters();
        next
    }

    /// From now until its end nobody of the same set goes on a trip.
    pub(super) fn begins_reset(&self, id: Id) {
        if let Some(mut set) = self.set(id) {
            set.resets += 1;
        }
    }

    /// `is_void`: nothing is left of what was paid for.
    pub(super) fn ends_reset(&self, id: Id, is_void: bool) {
        if let Some(mut set) = self.set(id) {
            set.resets -= 1;
            if let Some(entry) = set.entry(id).filter(|_| is_void) {
                entry.forget();
            }
        }
    }

    pub(super) fn is_away(&self, id: Id) -> bool {
        let set = self.set(id);
        set.is_some_and(|mut set| set.entry(id).is_some_and(|entry| entry.is_away()))
    }

    pub(super) fn are_away(&self) -> bool {
        let is_away = |set: &Mutex<Set>| lock(set).entries.iter().any(|(_, entry)| entry.is_away());
        self.sets.iter().any(is_away)
    }

    /// Waits until trips have come home.
    pub(super) async fn until_home(&self, are_away: impl Fn() -> bool) {
        loop {
            // Before looking: it hears of all that come home from here on.
            let arrival = self.arrivals.notified();
            if !are_away() {
                return;
            }
            arrival.await;
        }
    }

    /// What is to be given back now.
    pub(super) fn sweep(&self) -> Vec<(Id, Trip)> {
        let mut trips = Vec::new();
        for set in &self.sets {
            let mut set = lock(set);
            if set.resets > 0 {
                continue;
            }
            let now_us = self.now_us();
            set.entries
                .retain_mut(|(id, entry)| match entry.sweep(now_us) {
                    Swept::Stays => true,
                    Swept::GivesBack(trip) => {
                        trips.push((*id, trip));
                        true
                    }
                    Swept::Forgotten => false,
                });
        }
        trips
    }

    /// From now on nothing is held. What is to be given back.
    pub(super) fn close(&self) -> Vec<(Id, Trip)> {
        self.is_closed.store(true, Ordering::Relaxed);
        let mut trips = Vec::new();
        for set in &self.sets {
            let mut set = lock(set);
            if set.resets > 0 {
                // What is held then is void in a moment.
                continue;
            }
            let now_us = self.now_us();
            let closed = set.entries.iter_mut();
            trips.extend(closed.filter_map(|(id, entry)| Some((*id, entry.close(now_us)?))));
        }
        trips
    }

    /// Whether the caller of this is to sweep, as nobody does.
    pub(super) fn begins_sweeping(&self) -> bool {
        !self.is_swept.swap(true, Ordering::AcqRel)
    }

    /// Whether there is nothing to sweep any more.
    pub(super) fn ends_sweeping(&self) -> bool {
        let is_empty = || self.sets.iter().all(|set| lock(set).entries.is_empty());
        if !is_empty() {
            return false;
        }
        self.is_swept.store(false, Ordering::Release);
        // Somebody may have come meanwhile and seen that it is swept.
        is_empty() || !self.begins_sweeping()
    }

    pub(super) fn id(&self, leg: &Charge<'_>) -> Id {
        self.local.hash.of_leg(leg)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| lock(set).entries.len()).sum()
    }

    fn set(&self, id: Id) -> Option<MutexGuard<'_, Set>> {
        self.sets.get(id.0 as usize % SETS).map(lock)
    }

    fn now_us(&self) -> u64 {
        clock::read(&*self.local.clock)
    }
}

impl Set {
    fn entry(&mut self, id: Id) -> Option<&mut Entry> {
        let mut entries = self.entries.iter_mut();
        entries
            .find(|(other, _)| *other == id)
            .map(|(_, entry)| entry)
    }
}

fn lock(set: &Mutex<Set>) -> MutexGuard<'_, Set> {
    // Nothing panics while it holds a set.
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}
