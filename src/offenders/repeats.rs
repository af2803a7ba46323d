//! Denials that a thread repeats, counted without a lock and without a hash.
//!
//! A client that does not slow down is denied thousands of times in a row. Each thread remembers
//! the last denial that it counted twice. While it repeats that one, it adds to a counter of its
//! own, which its place takes over later. With a lock and a hash, denials took 5 % more time.
//!
//! A store that decides in this process hashes the keys of callers anyhow, and its decision tells the
//! hash. So a repeated denial is recognized by a few numbers.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::known::Known;
use crate::DenialReason;

/// How many times one thread has repeated a denial. Only that thread adds.
#[derive(Debug)]
pub(super) struct Repeats {
    /// The callers that were denied, with what lists them.
    pub(super) callers: SmallVec<[(u64, Known); 1]>,
    count: AtomicU64,
    last_us: AtomicU64,
}

/// What a thread repeats.
struct Repeated {
    /// The number of the list of offenders.
    list: usize,
    /// The hash of the callers, which the decision tells.
    callers: u32,
    reason: DenialReason,
    /// When it was remembered, by the clock of the store, and by that of this process.
    decided_us: u64,
    at_us: u64,
    /// For how long it is remembered.
    longest_us: u64,
    repeats: Arc<Repeats>,
}

thread_local! {
    static REPEATED: RefCell<Option<Repeated>> = const { RefCell::new(None) };
}

/// Lets this thread forget what it repeats of this list: another denial comes between.
pub(super) fn forget(list: usize) {
    // While the thread ends, it remembers nothing.
    let _ = REPEATED.try_with(|last| {
        let mut last = last.borrow_mut();
        if last.as_ref().is_some_and(|last| last.list == list) {
            *last = None;
        }
    });
}

impl Repeats {
    pub(super) fn new(callers: SmallVec<[(u64, Known); 1]>, at_us: u64) -> Arc<Self> {
        Arc::new(Self {
            callers,
            count: AtomicU64::new(0),
            last_us: AtomicU64::new(at_us),
        })
    }

    /// Returns the number of repetitions so far, and the time of the last one.
    pub(super) fn read(&self) -> (u64, u64) {
        let (count, last_us) = (&self.count, &self.last_us);
        (
            count.load(Ordering::Relaxed),
            last_us.load(Ordering::Relaxed),
        )
    }
}

/// A denial, as a thread compares it with the last one.
#[derive(Clone, Copy)]
pub(super) struct Compared {
    /// The number of the list of offenders.
    pub(super) list: usize,
    /// A hash of the callers, each with its policy. 0: it is not known.
    pub(super) callers: u32,
    pub(super) reason: DenialReason,
    /// When the store decided, by its clock.
    pub(super) decided_us: u64,
}

impl Compared {
    /// Counts it, if it repeats the denial that this thread remembers.
    #[inline]
    pub(super) fn count(self) -> bool {
        let counted = REPEATED.try_with(|repeated| {
            let repeated = repeated.try_borrow().ok()?;
            let repeated = repeated.as_ref()?;
            // Huge if the store's clock went back.
            let since_us = self.decided_us.wrapping_sub(repeated.decided_us);
            let is_repeated = repeated.callers == self.callers
                && repeated.list == self.list
                && repeated.reason == self.reason
                && since_us < repeated.longest_us;
            let Repeats { count, last_us, .. } = &*repeated.repeats;
            is_repeated.then(|| {
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                last_us.store(repeated.at_us + since_us, Ordering::Relaxed);
            })
        });
        counted.ok().flatten().is_some()
    }

    /// Lets this thread remember a denial that it counted at `at_us`, by the clock of this process,
    /// for so long.
    #[cold]
    pub(super) fn remember(self, at_us: u64, longest_us: u64, repeats: Arc<Repeats>) {
        let repeated = Repeated {
            list: self.list,
            callers: self.callers,
            reason: self.reason,
            decided_us: self.decided_us,
            at_us,
            longest_us,
            repeats,
        };
        // While the thread ends, it remembers nothing.
        let _ = REPEATED.try_with(|last| last.replace(Some(repeated)));
    }
}
