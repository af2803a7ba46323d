//! The callers of one store.

use std::{
    fmt, mem,
    sync::{Mutex, MutexGuard},
};

use tokio::{runtime::Handle, sync::Notify};

use super::entry::{Entry, Grant, RoundTrip};
use crate::{
    Decision, StoreError,
    charge::Charge,
    clock,
    store::process::ProcessContext,
    util::{hash::HashedMap, lock::lock},
};

/// The callers with leases: at most 4,096 at a time. Beyond that, the server decides the checks of
/// further callers.
pub(crate) struct Leases {
    table: Mutex<Table>,
    pub(super) process: ProcessContext,
    pub(super) runtime: Handle,
    /// Notified when a round trip ends.
    ends: Notify,
}

#[derive(Default)]
struct Table {
    entries: HashedMap<Id, Entry>,
    /// How many resets of a bucket are under way. Meanwhile no round trip of it begins.
    resets: HashedMap<Id, u32>,
    /// Whether a task sweeps the entries.
    is_swept: bool,
    is_closed: bool,
}

/// Of a bucket.
pub(super) type Id = (u64, u64);

const MOST: usize = 4_096;

impl Leases {
    pub(crate) fn new(process: ProcessContext, runtime: Handle) -> Self {
        Self {
            table: Mutex::default(),
            process,
            runtime,
            ends: Notify::new(),
        }
    }

    /// Returns what a check finds: a decision from leased units, a round trip to make, and whether
    /// the caller must start to sweep, because no task does.
    pub(super) fn look_up(
        &self,
        id: Id,
        charge: &Charge<'_>,
    ) -> (Option<Grant>, Option<Box<RoundTrip>>, bool) {
        let mut table = self.table();
        // Read under the lock, so that time goes forward for an entry.
        let now_us = self.now_us();
        let Table {
            entries,
            resets,
            is_swept,
            is_closed,
        } = &mut *table;
        let is_full = entries.len() >= MOST && !entries.contains_key(&id);
        if *is_closed || is_full {
            return (None, None, false);
        }
        let entry = entries.entry(id).or_default();
        let grant = entry.take(charge, now_us);
        let trip = match resets.contains_key(&id) {
            true => None,
            false => entry.next_round_trip(charge, now_us).map(Box::new),
        };
        (grant, trip, !mem::replace(is_swept, true))
    }

    pub(super) fn record_answer(&self, id: Id, cost: u64, answer: &Result<Decision, StoreError>) {
        let mut table = self.table();
        let now_us = self.now_us();
        if let Some(entry) = table.entries.get_mut(&id) {
            entry.record_answer(cost, answer, now_us);
        }
    }

    pub(super) fn end_round_trip(
        &self,
        id: Id,
        trip: RoundTrip,
        answer: &Result<Decision, StoreError>,
    ) -> Option<RoundTrip> {
        let mut table = self.table();
        let (now_us, is_closed) = (self.now_us(), table.is_closed);
        let is_reset = table.resets.contains_key(&id);
        let entry = table.entries.get_mut(&id)?;
        entry.end_round_trip(trip, answer, is_closed);
        let next = if is_reset { None } else { entry.refund(now_us) };
        drop(table);
        self.ends.notify_waiters();
        next
    }

    /// Begins resets. Until their end, no round trip of these buckets begins.
    pub(super) fn begin_resets(&self, ids: &[Id]) {
        let mut table = self.table();
        for id in ids {
            *table.resets.entry(*id).or_default() += 1;
        }
    }

    /// Ends resets. `are_void`: the leased units are void.
    pub(super) fn end_resets(&self, ids: &[Id], are_void: bool) {
        let mut table = self.table();
        for id in ids {
            if let Some(resets) = table.resets.get_mut(id) {
                *resets -= 1;
            }
            if let Some(entry) = table.entries.get_mut(id).filter(|_| are_void) {
                entry.void();
            }
        }
        table.resets.retain(|_, resets| *resets > 0);
    }

    /// Returns how many units are leased and not used.
    pub(crate) fn units(&self) -> u64 {
        self.table().entries.values().map(Entry::left).sum()
    }

    /// Waits until round trips have ended: those of some buckets, or of all.
    pub(super) async fn wait_for_round_trips(&self, of: Option<&[Id]>) {
        loop {
            // Registered before the check, so that no end is missed.
            let end = self.ends.notified();
            if !self.any_in_flight(of) {
                return;
            }
            end.await;
        }
    }

    pub(super) fn any_in_flight(&self, of: Option<&[Id]>) -> bool {
        let table = self.table();
        let mut entries = table.entries.iter();
        entries.any(|(id, entry)| entry.in_flight && of.is_none_or(|ids| ids.contains(id)))
    }

    /// Returns the refunds that are due. `None`: nothing is left to sweep, so the sweeping ends.
    pub(super) fn sweep(&self) -> Option<Vec<(Id, RoundTrip)>> {
        let mut table = self.table();
        let now_us = self.now_us();
        let Table {
            entries, resets, ..
        } = &mut *table;
        let mut trips = Vec::new();
        entries.retain(|id, entry| {
            if resets.contains_key(id) {
                return true;
            }
            trips.extend(entry.sweep(now_us).map(|trip| (*id, trip)));
            !entry.is_idle()
        });
        table.is_swept = !table.entries.is_empty();
        table.is_swept.then_some(trips)
    }

    /// Ends all leases. No caller leases from now on. Returns the refunds.
    pub(super) fn close(&self) -> Vec<(Id, RoundTrip)> {
        let mut table = self.table();
        let now_us = self.now_us();
        table.is_closed = true;
        let Table {
            entries, resets, ..
        } = &mut *table;
        // A reset voids its leases.
        let closed = entries
            .iter_mut()
            .filter(|(id, _)| !resets.contains_key(id));
        let trips = closed.filter_map(|(id, entry)| Some((*id, entry.close(now_us)?)));
        trips.collect()
    }

    /// Returns the entries whose leases have such a charge.
    pub(super) fn ids_of(&self, is_such: impl Fn(&Charge<'_>) -> bool) -> Vec<Id> {
        let table = self.table();
        let entries = table.entries.iter();
        let such = entries.filter(|(_, entry)| entry.charge.as_deref().is_some_and(&is_such));
        such.map(|(id, _)| *id).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table().entries.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn now_us(&self) -> u64 {
        clock::read(&*self.process.clock)
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leases")
    }
}
