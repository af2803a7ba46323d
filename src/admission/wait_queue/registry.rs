//! The lines of this process, each under a lock of its own.

use std::{
    collections::HashMap,
    mem,
    pin::Pin,
    sync::{
        Arc, LazyLock, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use tokio::time::Sleep;

use super::{
    Bucket,
    line::{Line, Turns},
};
use crate::util::lock::lock;

/// The lines of one kind. Their lock is held only to find a line.
pub(crate) type Lines<T> = LazyLock<Mutex<HashMap<Bucket, Weak<Queue<T>>>>>;

/// The line for one bucket, shared by all that wait in it.
pub(crate) struct Queue<T: Turns + 'static> {
    lines: &'static Lines<T>,
    bucket: Bucket,
    line: Mutex<Line<T>>,
    /// How many callers wait for the bucket.
    waiting: Arc<AtomicUsize>,
}

/// A place in a line, until it is dropped.
pub(crate) struct Place<T: Turns + 'static> {
    pub(super) queue: Arc<Queue<T>>,
    pub(super) ticket: u64,
}

/// How many callers wait in this process. No line is longer than that.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Returns whether `most` callers wait for a bucket.
pub(super) fn is_full<T: Turns>(lines: &Lines<T>, bucket: &Bucket, most: usize) -> bool {
    let queue = || lock(lines).get(bucket).and_then(Weak::upgrade);
    WAITING.load(Ordering::Relaxed) >= most && queue().map_or(0, |queue| queue.len()) >= most
}

impl<T: Turns> Queue<T> {
    pub(super) fn find_or_add(lines: &'static Lines<T>, bucket: &Bucket) -> Arc<Self> {
        let mut by_bucket = lock(lines);
        let found = by_bucket.get(bucket).and_then(Weak::upgrade);
        found.unwrap_or_else(|| {
            let queue = Self::new(lines, bucket, Arc::default());
            by_bucket.insert(bucket.clone(), Arc::downgrade(&queue));
            queue
        })
    }

    /// Returns the line for callers that come from now on.
    pub(super) fn replace(&self) -> Arc<Self> {
        let queue = Self::new(self.lines, &self.bucket, Arc::clone(&self.waiting));
        lock(self.lines).insert(self.bucket.clone(), Arc::downgrade(&queue));
        queue
    }

    fn new(lines: &'static Lines<T>, bucket: &Bucket, waiting: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self {
            lines,
            bucket: bucket.clone(),
            line: Mutex::default(),
            waiting,
        })
    }

    pub(super) fn is_for(&self, bucket: &Bucket) -> bool {
        self.bucket == *bucket
    }

    /// Returns how many callers wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Changes the line. Wakes the waiters whose turn this changes.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Line<T>) -> R) -> R {
        let mut line = lock(&self.line);
        line.advance();
        let changed = change(&mut line);
        line.advance();
        let woken = mem::take(&mut line.woken);
        drop(line);
        woken.into_iter().for_each(Waker::wake);
        changed
    }
}

impl<T: Turns> Drop for Queue<T> {
    fn drop(&mut self) {
        let mut lines = lock(self.lines);
        // Another line may have replaced it.
        let known = lines.get(&self.bucket);
        if known.is_some_and(|known| known.strong_count() == 0) {
            lines.remove(&self.bucket);
        }
    }
}

impl<T: Turns> Place<T> {
    /// Enters the line, if `enter` returns how many units the waiters behind it wait for, its own
    /// units, and the waiter.
    pub(super) fn enter(
        queue: &Arc<Queue<T>>,
        enter: impl FnOnce(&mut Line<T>) -> Option<(u64, u64, T::Waiter)>,
    ) -> Option<Self> {
        let ticket = queue.change(|line| {
            let (behind, units, waiter) = enter(line)?;
            for waiting in [&queue.waiting, &WAITING] {
                waiting.fetch_add(1, Ordering::Relaxed);
            }
            Some(line.add(behind, units, waiter))
        })?;
        let queue = Arc::clone(queue);
        Some(Self { queue, ticket })
    }

    /// Waits until the turn has come.
    pub(crate) fn poll_turn(&self, sleep: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>) -> Poll<()> {
        let sleeps = |cx: &Context<'_>| {
            self.queue
                .change(|line| line.sleep(self.ticket, cx.waker()))
        };
        while let Some(until) = sleeps(cx) {
            if until != sleep.deadline() {
                sleep.as_mut().reset(until);
            }
            ready!(sleep.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}

impl<T: Turns> Drop for Place<T> {
    fn drop(&mut self) {
        self.queue.change(|line| line.leave(self.ticket));
        for waiting in [&self.queue.waiting, &WAITING] {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
