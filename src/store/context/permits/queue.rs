//! The queue of the callers of this process that wait for permits of one key.

use std::{collections::BTreeMap, mem, task::Waker};

/// Waiters, in the order in which they came.
///
/// Each released unit calls one waiter, which then asks the store. Units that other processes
/// release are unknown here, so the first waiter also polls the store.
#[derive(Debug, Default)]
pub(super) struct PermitQueue {
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug, Default)]
struct Waiter {
    stage: Stage,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Waiting,
    Called(CallReason),
    /// The store has not answered yet. `again`: the waiter was called meanwhile.
    Asking {
        reason: CallReason,
        again: bool,
    },
}

/// Why a waiter asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallReason {
    /// A unit was released in this process.
    Released,
    /// To find units that other processes released. If it is admitted, there may be more.
    Poll,
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

impl PermitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn enter(&mut self, most: usize) -> Option<u64> {
        if self.waiters.len() >= most {
            return None;
        }
        self.next += 1;
        self.waiters.insert(self.next, Waiter::default());
        Some(self.next)
    }

    /// Calls the first waiters, one for each unit. Returns their wakers.
    pub(super) fn call(&mut self, units: u64, reason: CallReason) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut left = units;
        for waiter in self.waiters.values_mut() {
            if left == 0 {
                break;
            }
            match &mut waiter.stage {
                Stage::Waiting => {
                    waiter.stage = Stage::Called(reason);
                    wakers.extend(waiter.waker.take());
                    left -= 1;
                }
                Stage::Asking { again, .. } if !*again => {
                    *again = true;
                    left -= 1;
                }
                Stage::Called(_) | Stage::Asking { .. } => {}
            }
        }
        wakers
    }

    /// Returns what this waiter does next. `waker` is woken when that changes.
    pub(super) fn next_step(&mut self, ticket: u64, waker: &Waker) -> NextStep {
        let is_first = self.waiters.keys().next() == Some(&ticket);
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return NextStep::First;
        };
        match waiter.stage {
            Stage::Called(reason) => {
                waiter.stage = Stage::Asking {
                    reason,
                    again: false,
                };
                NextStep::Ask
            }
            _ => {
                waiter.waker = Some(waker.clone());
                if is_first {
                    NextStep::First
                } else {
                    NextStep::Behind
                }
            }
        }
    }

    /// Records that this waiter asks without having been called.
    pub(super) fn record_ask(&mut self, ticket: u64) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.stage = Stage::Asking {
                reason: CallReason::Poll,
                again: false,
            };
        }
    }

    /// Records that this waiter was denied and keeps waiting.
    pub(super) fn record_denial(&mut self, ticket: u64) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.stage = match waiter.stage {
                Stage::Asking { again: true, .. } => Stage::Called(CallReason::Released),
                _ => Stage::Waiting,
            };
        }
    }

    /// Removes a waiter. Returns the wakers of the new first waiter, and of the waiter that
    /// takes over its call.
    pub(super) fn leave(&mut self, ticket: u64, is_admitted: bool) -> Vec<Waker> {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return Vec::new();
        };
        let mut wakers = match waiter.stage {
            Stage::Called(reason) => self.call(1, reason),
            Stage::Asking { again: true, .. } => self.call(1, CallReason::Released),
            Stage::Asking {
                reason: CallReason::Poll,
                ..
            } if is_admitted => self.call(1, CallReason::Poll),
            _ => Vec::new(),
        };
        let first = self.waiters.values_mut().next();
        wakers.extend(first.and_then(|first| mem::take(&mut first.waker)));
        wakers
    }
}
