//! Records the outcome of each request as it happens, to be judged later.

mod file;
mod outcome;

use std::{
    sync::MutexGuard,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::prelude::*;

pub(crate) use self::{
    file::{append, read, write},
    outcome::{By, Outcome},
};

/// One request. Times are microseconds since the epoch, monotonic in a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) process: u8,
    pub(crate) id: u64,
    pub(crate) key: u32,
    pub(crate) cost: u32,
    pub(crate) outcome: Outcome,
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
    /// What remains by the decision; of several policies, the least.
    pub(crate) remaining: Option<u64>,
}

impl Entry {
    pub(crate) const fn took_us(&self) -> u64 {
        self.answered_us.saturating_sub(self.sent_us)
    }
}

/// Records entries, in buffers that few tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    process: u8,
    ids: AtomicU64,
    started: Instant,
    started_us: u64,
    buffers: [Mutex<Vec<Entry>>; 16],
}

impl Recorder {
    pub(crate) fn new(process: u8) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(Arc::new(Inner {
            process,
            ids: AtomicU64::new(0),
            started: Instant::now(),
            started_us: since_epoch.expect("a clock").as_micros() as u64,
            buffers: Default::default(),
        }))
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.0.started_us + self.0.started.elapsed().as_micros() as u64
    }

    /// Returns the time from an instant until now.
    pub(crate) fn since(&self, from_us: u64) -> Window {
        let to_us = self.now_us();
        Window { from_us, to_us }
    }

    /// Records a request that is about to be sent. It stays in the ledger, whatever its
    /// outcome.
    pub(crate) fn open(&self, key: u32, cost: u32) -> Pending {
        let id = self.0.ids.fetch_add(1, Ordering::Relaxed);
        let entry = Entry {
            process: self.0.process,
            id,
            key,
            cost,
            outcome: Outcome::Unanswered,
            sent_us: self.now_us(),
            answered_us: 0,
            remaining: None,
        };
        Pending {
            recorder: self.clone(),
            entry,
        }
    }

    fn buffers(&self) -> impl Iterator<Item = MutexGuard<'_, Vec<Entry>>> {
        let buffers = self.0.buffers.iter();
        buffers.map(|buffer| buffer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether there is such an entry.
    pub(crate) fn has(&self, is: impl Fn(&Entry) -> bool) -> bool {
        let mut buffers = self.buffers();
        buffers.any(|buffer| buffer.iter().rev().any(&is))
    }

    pub(crate) fn count(&self, is: impl Fn(&Entry) -> bool) -> u64 {
        let counts = self
            .buffers()
            .map(|buffer| buffer.iter().filter(|entry| is(entry)).count());
        counts.sum::<usize>() as u64
    }

    /// Takes all entries recorded so far.
    pub(crate) fn take(&self) -> Vec<Entry> {
        let buffers = self.buffers();
        buffers
            .flat_map(|mut buffer| std::mem::take(&mut *buffer))
            .collect()
    }

    /// Returns all entries, in the order in which they were sent.
    pub(crate) fn ledger(&self) -> Vec<Entry> {
        let mut all: Vec<_> = self.buffers().flat_map(|buffer| buffer.clone()).collect();
        all.sort_by_key(|entry| (entry.sent_us, entry.id));
        all
    }
}

#[derive(Debug)]
pub(crate) struct Pending {
    recorder: Recorder,
    entry: Entry,
}

impl Pending {
    pub(crate) fn answered(mut self, answer: &Result<Decision, StoreError>) {
        self.entry.outcome = Outcome::of(answer);
        if let Ok(decision) = answer {
            let remaining = decision.policies().map(|policy| policy.remaining());
            self.entry.remaining = remaining.min();
        }
    }

    pub(crate) fn hung_up(mut self) {
        self.entry.outcome = Outcome::HungUp;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.entry.answered_us = self.recorder.now_us();
        if std::thread::panicking() {
            self.entry.outcome = Outcome::Panicked;
        }
        let buffers = &self.recorder.0.buffers;
        let buffer = &buffers[self.entry.id as usize % buffers.len()];
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.push(self.entry.clone());
    }
}
