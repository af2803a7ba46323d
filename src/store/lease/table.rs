//! The callers of one store.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, sync::Notify};

use super::entry::{Entry, Grant, RoundTrip, SweepResult};
use crate::{
    Decision, Key, StoreError, charge::Charge, clock, store::process::ProcessContext,
    util::lock::lock,
};

/// The callers with leases: at most 4,096 at a time. Beyond that, the server decides the checks of
/// further callers.
pub(crate) struct Leases {
    sets: Box<[Mutex<Set>]>,
    process: ProcessContext,
    runtime: Handle,
    is_swept: AtomicBool,
    is_closed: AtomicBool,
    /// Notified when a round trip ends.
    ends: Notify,
}

/// Callers whose hashes lead to the same set.
#[derive(Default)]
struct Set {
    entries: Vec<(Id, Entry)>,
    /// How many resets of their buckets are under way. Meanwhile no round trip begins.
    resets: u32,
}

/// 128 bits of a keyed hash. Without the process's key, no client can make two callers
/// collide.
pub(super) type Id = (u64, u64);

const SETS: usize = 512;
const ENTRIES: usize = 8;

/// What a check finds in the table.
pub(super) struct Lookup {
    pub(super) id: Id,
    /// A decision from leased units.
    pub(super) grant: Option<Grant>,
    pub(super) trip: Option<Box<RoundTrip>>,
    /// Whether the entry is new: it must be swept from now on.
    pub(super) is_new: bool,
}

impl Leases {
    pub(crate) fn new(process: ProcessContext, runtime: Handle) -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            process,
            runtime,
            is_swept: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            ends: Notify::new(),
        }
    }

    pub(super) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn look_up(&self, charge: &Charge<'_>) -> Lookup {
        let id = self.id(charge);
        let mut set = self.set(id);
        // Both are read under the lock: time goes forward for an entry, and no entry is made
        // once all are closed.
        let now_us = self.now_us();
        let mut lookup = Lookup {
            id,
            grant: None,
            trip: None,
            is_new: false,
        };
        if self.is_closed.load(Ordering::Relaxed) {
            return lookup;
        }
        let Set { entries, resets } = &mut *set;
        let entry = match entries.iter().position(|(other, _)| *other == id) {
            Some(place) => entries.get_mut(place),
            None if entries.len() < ENTRIES => {
                lookup.is_new = true;
                entries.push((id, Entry::default()));
                entries.last_mut()
            }
            None => None,
        };
        if let Some((_, entry)) = entry {
            lookup.grant = entry.take(charge, now_us);
            if *resets == 0 {
                lookup.trip = entry.next_round_trip(charge, now_us).map(Box::new);
            }
        }
        lookup
    }

    pub(super) fn record_answer(&self, id: Id, cost: u64, answer: &Result<Decision, StoreError>) {
        let mut set = self.set(id);
        let now_us = self.now_us();
        if let Some(entry) = set.entry(id) {
            entry.record_answer(cost, answer, now_us);
        }
    }

    pub(super) fn end_round_trip(
        &self,
        id: Id,
        trip: RoundTrip,
        answer: &Result<Decision, StoreError>,
    ) -> Option<RoundTrip> {
        let mut set = self.set(id);
        let (now_us, is_reset) = (self.now_us(), set.resets > 0);
        let entry = set.entry(id)?;
        entry.end_round_trip(trip, answer, self.is_closed.load(Ordering::Relaxed));
        let next = if is_reset { None } else { entry.refund(now_us) };
        drop(set);
        self.ends.notify_waiters();
        next
    }

    /// Begins a reset. Until its end, no round trip of this set begins.
    pub(super) fn begins_reset(&self, id: Id) {
        self.set(id).resets += 1;
    }

    /// Ends a reset. `is_void`: the leased units are void.
    pub(super) fn ends_reset(&self, id: Id, is_void: bool) {
        let mut set = self.set(id);
        set.resets -= 1;
        if let Some(entry) = set.entry(id).filter(|_| is_void) {
            entry.void();
        }
    }

    pub(super) fn in_flight(&self, id: Id) -> bool {
        self.set(id)
            .entry(id)
            .is_some_and(|entry| entry.in_flight())
    }

    pub(super) fn any_in_flight(&self) -> bool {
        let in_flight =
            |set: &Mutex<Set>| lock(set).entries.iter().any(|(_, entry)| entry.in_flight());
        self.sets.iter().any(in_flight)
    }

    /// Returns how many units are leased and not used.
    pub(super) fn units(&self) -> u64 {
        let units = |set: &Mutex<Set>| -> u64 {
            let set = lock(set);
            set.entries.iter().map(|(_, entry)| entry.left()).sum()
        };
        self.sets.iter().map(units).sum()
    }

    /// Waits until round trips have ended.
    pub(super) async fn wait_for_round_trips(&self, any_in_flight: impl Fn() -> bool) {
        loop {
            // Registered before the check, so that no end is missed.
            let end = self.ends.notified();
            if !any_in_flight() {
                return;
            }
            end.await;
        }
    }

    /// Returns the refunds that are due.
    pub(super) fn sweep(&self) -> Vec<(Id, RoundTrip)> {
        let mut trips = Vec::new();
        for set in &self.sets {
            let mut set = lock(set);
            if set.resets > 0 {
                continue;
            }
            let now_us = self.now_us();
            set.entries
                .retain_mut(|(id, entry)| match entry.sweep(now_us) {
                    SweepResult::Stays => true,
                    SweepResult::Refunds(trip) => {
                        trips.push((*id, *trip));
                        true
                    }
                    SweepResult::Forgotten => false,
                });
        }
        trips
    }

    /// Ends all leases. No caller leases from now on. Returns the refunds.
    pub(super) fn close(&self) -> Vec<(Id, RoundTrip)> {
        self.is_closed.store(true, Ordering::Relaxed);
        let mut trips = Vec::new();
        for set in &self.sets {
            let mut set = lock(set);
            if set.resets > 0 {
                // The reset voids its leases.
                continue;
            }
            let now_us = self.now_us();
            let closed = set.entries.iter_mut();
            trips.extend(closed.filter_map(|(id, entry)| Some((*id, entry.close(now_us)?))));
        }
        trips
    }

    /// Returns whether the caller must start to sweep, because no task does.
    pub(super) fn begins_sweeping(&self) -> bool {
        !self.is_swept.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the sweep ends, because nothing is left to sweep.
    pub(super) fn ends_sweeping(&self) -> bool {
        let is_empty = || self.sets.iter().all(|set| lock(set).entries.is_empty());
        if !is_empty() {
            return false;
        }
        self.is_swept.store(false, Ordering::Release);
        // A new entry may have relied on this sweep meanwhile.
        is_empty() || !self.begins_sweeping()
    }

    pub(super) fn id(&self, charge: &Charge<'_>) -> Id {
        self.process.hash.hash_128(
            charge.policy.hash,
            charge.demand.quota.letter(),
            charge.key_bytes(),
        )
    }

    /// Returns the entries of this charge's policy and algorithm, of callers with such a key.
    pub(super) fn ids_of(&self, charge: &Charge<'_>, is_such: impl Fn(&Key) -> bool) -> Vec<Id> {
        let is_meant = |leased: &Charge<'_>| {
            let letter = |charge: &Charge<'_>| charge.demand.quota.letter();
            leased.policy == charge.policy
                && letter(leased) == letter(charge)
                && is_such(&leased.key)
        };
        let mut ids = vec![self.id(charge)];
        for set in &self.sets {
            let set = lock(set);
            let entries = set.entries.iter();
            let entries = entries.filter(|(_, entry)| entry.charge().is_some_and(is_meant));
            ids.extend(entries.map(|(id, _)| *id));
        }
        ids
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| lock(set).entries.len()).sum()
    }

    #[expect(clippy::expect_used, reason = "the remainder is less than the length")]
    fn set(&self, id: Id) -> MutexGuard<'_, Set> {
        let set = self.sets.get(id.0 as usize % SETS);
        lock(set.expect("each id has a set"))
    }

    fn now_us(&self) -> u64 {
        clock::read(&*self.process.clock)
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

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}
