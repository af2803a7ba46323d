//! The queue of the callers of this process that wait for permits of one key.

use std::{collections::BTreeMap, mem, task::Waker};

/// Waiters, in the order in which they came.
///
/// The units that come free call the first waiters, which then ask the store. How many are free
/// follows from the store's last answer and from what this process has released since. Units that
/// other processes release are unknown here, so the first waiter also polls the store.
#[derive(Debug, Default)]
pub(super) struct PermitQueue {
    /// By their numbers, which grow from caller to caller.
    waiters: BTreeMap<u64, Waiter>,
    /// The units for further waiters.
    free: u64,
    /// The units of the waiters that were called and have no answer yet.
    called: u64,
    /// How many units this process has released.
    released: u64,
}

#[derive(Debug)]
struct Waiter {
    units: u64,
    stage: Stage,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Called,
    /// The store has not answered yet.
    Asking {
        released_before: u64,
    },
}

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Ask,
    /// It is the first waiter, and polls the store.
    First,
    /// It waits until it is called.
    Behind,
}

/// Wakers of waiters, to be woken without the lock.
pub(super) type Wakers = Vec<Waker>;

impl PermitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns how many units this process has released.
    pub(super) const fn released(&self) -> u64 {
        self.released
    }

    /// Returns whether the caller of this number must wait behind others: those that came before it
    /// and were not called, or, for a new caller, all that wait.
    pub(super) fn has_earlier(&self, number: u64, is_new: bool) -> bool {
        let mut earlier = self.waiters.range(..number).map(|(_, waiter)| waiter);
        earlier.any(|waiter| is_new || waiter.stage == Stage::Waiting)
    }

    /// Enters the place of this number, unless `most` callers wait. Returns whether it did.
    pub(super) fn enter(&mut self, number: u64, units: u64, most: usize) -> bool {
        if self.waiters.len() >= most {
            return false;
        }
        if self.is_empty() {
            (self.free, self.called) = (0, 0);
        }
        let waiter = Waiter {
            units,
            stage: Stage::Waiting,
            waker: None,
        };
        self.waiters.insert(number, waiter);
        // It has no waker yet, and asks what its next step is.
        self.call();
        true
    }

    pub(super) fn release(&mut self, units: u64) -> Wakers {
        self.released = self.released.saturating_add(units);
        self.free = self.free.saturating_add(units);
        self.call()
    }

    /// Calls the first waiters for which units are free.
    fn call(&mut self) -> Wakers {
        let mut wakers = Wakers::new();
        for waiter in self.waiters.values_mut() {
            if waiter.stage != Stage::Waiting {
                continue;
            }
            if waiter.units > self.free {
                break;
            }
            self.free -= waiter.units;
            self.called = self.called.saturating_add(waiter.units);
            waiter.stage = Stage::Called;
            wakers.extend(waiter.waker.take());
        }
        wakers
    }

    /// Records an answer of the store: how many units it had left, and how many this process had
    /// released before the check. Calls waiters.
    fn learn(&mut self, left: u64, released_before: u64) -> Wakers {
        self.free = left.saturating_sub(self.called);
        if self.called == 0 && self.released > released_before {
            // The store may not have counted what was released meanwhile.
            let first = self.waiters.values().next();
            self.free = self.free.max(first.map_or(0, |first| first.units));
        }
        self.call()
    }

    /// Returns what this waiter does next. `waker` is woken when that changes.
    pub(super) fn next_step(&mut self, number: u64, waker: &Waker) -> NextStep {
        let is_first = self.waiters.keys().next() == Some(&number);
        let released_before = self.released;
        let Some(waiter) = self.waiters.get_mut(&number) else {
            return NextStep::First;
        };
        if waiter.stage == Stage::Called {
            waiter.stage = Stage::Asking { released_before };
            return NextStep::Ask;
        }
        waiter.waker = Some(waker.clone());
        if is_first {
            NextStep::First
        } else {
            NextStep::Behind
        }
    }

    /// Records that this waiter asks without having been called.
    pub(super) fn record_ask(&mut self, number: u64) {
        let released_before = self.released;
        if let Some(waiter) = self.waiters.get_mut(&number) {
            if waiter.stage == Stage::Waiting {
                self.free = self.free.saturating_sub(waiter.units);
                self.called = self.called.saturating_add(waiter.units);
            }
            waiter.stage = Stage::Asking { released_before };
        }
    }

    /// Records that this waiter was denied and keeps waiting, and how many units the store had left.
    /// `released_before`: how many this process had released before the check, if the caller had no
    /// place then.
    pub(super) fn denied(&mut self, number: u64, left: u64, released_before: u64) -> Wakers {
        let Some(waiter) = self.waiters.get_mut(&number) else {
            return Wakers::new();
        };
        let units = waiter.units;
        let mut before = released_before;
        match mem::replace(&mut waiter.stage, Stage::Waiting) {
            Stage::Waiting => {}
            Stage::Called => self.called = self.called.saturating_sub(units),
            Stage::Asking { released_before } => {
                before = released_before;
                self.called = self.called.saturating_sub(units);
            }
        }
        // Whatever is left, it was not enough.
        self.learn(left.min(units.saturating_sub(1)), before)
    }

    /// Removes a waiter. `left`: if it was admitted, how many units the store had left. Returns the
    /// wakers of the waiters that are called, and of the new first one.
    pub(super) fn leave(&mut self, number: u64, left: Option<u64>) -> Wakers {
        let Some(waiter) = self.waiters.remove(&number) else {
            return Wakers::new();
        };
        if waiter.stage != Stage::Waiting {
            self.called = self.called.saturating_sub(waiter.units);
        }
        let mut wakers = match (left, waiter.stage) {
            (Some(left), Stage::Asking { released_before }) => self.learn(left, released_before),
            (_, Stage::Waiting) => self.call(),
            _ => {
                self.free = self.free.saturating_add(waiter.units);
                self.call()
            }
        };
        let first = self.waiters.values_mut().next();
        wakers.extend(first.and_then(|first| first.waker.take()));
        wakers
    }
}
