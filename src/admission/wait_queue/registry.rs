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
pub(crate) struct Lines<T: Turns + 'static> {
    by_bucket: LazyLock<Mutex<HashMap<Bucket, Weak<Queue<T>>>>>,
    /// How many callers wait. No line is longer than that.
    waiting: AtomicUsize,
}

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
    /// Its turn has come, and it lets others go on first.
    has_yielded: bool,
}

impl<T: Turns> Lines<T> {
    pub(super) const fn new() -> Self {
        Self {
            by_bucket: LazyLock::new(Mutex::default),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Returns whether `most` callers wait for a bucket.
    pub(super) fn is_full(&self, bucket: &Bucket, most: usize) -> bool {
        self.have_waiters(most) && self.find(bucket).map_or(0, |queue| queue.len()) >= most
    }

    /// Returns whether at least so many callers wait, for any bucket.
    pub(super) fn have_waiters(&self, least: usize) -> bool {
        self.waiting.load(Ordering::Relaxed) >= least
    }

    #[cfg(test)]
    pub(super) fn knows(&self, bucket: &Bucket) -> bool {
        lock(&self.by_bucket).contains_key(bucket)
    }

    /// Returns the line for a bucket, if callers wait there.
    pub(super) fn find(&self, bucket: &Bucket) -> Option<Arc<Queue<T>>> {
        lock(&self.by_bucket).get(bucket).and_then(Weak::upgrade)
    }
}

impl<T: Turns> Queue<T> {
    pub(super) fn find_or_add(lines: &'static Lines<T>, bucket: &Bucket) -> Arc<Self> {
        let mut by_bucket = lock(&lines.by_bucket);
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
        lock(&self.lines.by_bucket).insert(self.bucket.clone(), Arc::downgrade(&queue));
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
        let mut lines = lock(&self.lines.by_bucket);
        // Another line may have replaced it.
        let known = lines.get(&self.bucket);
        if known.is_some_and(|known| known.strong_count() == 0) {
            lines.remove(&self.bucket);
        }
    }
}

impl<T: Turns> Place<T> {
    /// Enters the line, if `enter` adds a waiter and returns its ticket.
    pub(super) fn enter(
        queue: &Arc<Queue<T>>,
        enter: impl FnOnce(&mut Line<T>) -> Option<u64>,
    ) -> Option<Self> {
        let ticket = queue.change(|line| {
            let ticket = enter(line)?;
            for waiting in [&queue.waiting, &queue.lines.waiting] {
                waiting.fetch_add(1, Ordering::Relaxed);
            }
            Some(ticket)
        })?;
        let queue = Arc::clone(queue);
        Some(Self {
            queue,
            ticket,
            has_yielded: false,
        })
    }

    /// Waits until the turn has come. If the turns of others have come, too, those before it go on
    /// first, unless they are not polled: it is polled once more, after them.
    pub(crate) fn poll_turn(
        &mut self,
        sleep: &mut Pin<Box<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let (until, goes_on) = self.queue.change(|line| {
                let until = line.sleep(self.ticket, cx.waker());
                (
                    until,
                    until.is_none() && line.goes_on(self.ticket, self.has_yielded),
                )
            });
            let Some(until) = until else {
                self.has_yielded = !goes_on;
                if goes_on {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            if until != sleep.deadline() {
                sleep.as_mut().reset(until);
            }
            ready!(sleep.as_mut().poll(cx));
        }
    }
}

impl<T: Turns> Drop for Place<T> {
    fn drop(&mut self) {
        self.queue.change(|line| line.leave(self.ticket));
        for waiting in [&self.queue.waiting, &self.queue.lines.waiting] {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
