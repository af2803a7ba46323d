//! The queues of this process, each under a lock of its own.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::Bucket;
use crate::util::lock::lock;

/// What waits for one bucket.
pub(super) trait Queue: Default {
    /// Whether it must be kept.
    fn is_of_use(&mut self) -> bool;

    /// How many wait.
    fn len(&self) -> usize;
}

/// The queues of all buckets. Its own lock is held only to find one.
pub(super) struct Registry<Q>(LazyLock<Mutex<Queues<Q>>>);

struct Queues<Q> {
    by_bucket: HashMap<Bucket, Arc<Shared<Q>>>,
    /// How many there may be before those of no use are looked for.
    many: usize,
}

/// A queue, for all that wait in it.
pub(super) struct Shared<Q> {
    bucket: Bucket,
    state: Mutex<State<Q>>,
}

pub(super) struct State<Q> {
    pub(super) queue: Q,
    /// It is no longer in the registry.
    is_closed: bool,
}

/// How many wait in this process: no queue is longer than that.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether there may be a queue of that length.
pub(super) fn may_be_full(most: usize) -> bool {
    WAITING.load(Ordering::Relaxed) >= most
}

impl<Q: Queue> Registry<Q> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(|| {
            Mutex::new(Queues {
                by_bucket: HashMap::new(),
                many: 0,
            })
        }))
    }

    /// Calls `enter` with the queue of a bucket.
    pub(super) fn enter<T>(
        &self,
        bucket: &Bucket,
        enter: impl FnOnce(&mut Q) -> T,
    ) -> (Arc<Shared<Q>>, T) {
        loop {
            let shared = lock(&self.0).queue(bucket);
            let mut state = lock(&shared.state);
            if !state.is_closed {
                let before = state.queue.len();
                let entered = enter(&mut state.queue);
                count(before, state.queue.len());
                drop(state);
                return (shared, entered);
            }
        }
    }

    /// Calls `change` with a queue, and forgets it if it is of no use any more.
    pub(super) fn change<T>(&self, shared: &Shared<Q>, change: impl FnOnce(&mut Q) -> T) -> T {
        let mut state = lock(&shared.state);
        let before = state.queue.len();
        let changed = change(&mut state.queue);
        count(before, state.queue.len());
        let is_of_use = state.queue.is_of_use();
        drop(state);
        if !is_of_use {
            lock(&self.0).forget(shared);
        }
        changed
    }

    /// How many wait for a bucket.
    pub(super) fn len(&self, bucket: &Bucket) -> usize {
        let shared = lock(&self.0).by_bucket.get(bucket).cloned();
        shared.map_or(0, |shared| lock(&shared.state).queue.len())
    }

    #[cfg(test)]
    pub(super) fn find(&self, bucket: &Bucket) -> Option<Arc<Shared<Q>>> {
        lock(&self.0).by_bucket.get(bucket).cloned()
    }
}

impl<Q: Queue> Queues<Q> {
    fn queue(&mut self, bucket: &Bucket) -> Arc<Shared<Q>> {
        if let Some(shared) = self.by_bucket.get(bucket) {
            return Arc::clone(shared);
        }
        if self.by_bucket.len() > self.many {
            self.by_bucket.retain(|_, shared| !shared.close());
            self.many = 2 * self.by_bucket.len().max(512);
        }
        let shared = Arc::new(Shared {
            bucket: bucket.clone(),
            state: Mutex::new(State {
                queue: Q::default(),
                is_closed: false,
            }),
        });
        self.by_bucket.insert(bucket.clone(), Arc::clone(&shared));
        shared
    }

    fn forget(&mut self, shared: &Shared<Q>) {
        // It may have been closed, and another opened, or be of use again.
        if !lock(&shared.state).is_closed && shared.close() {
            self.by_bucket.remove(&shared.bucket);
        }
    }
}

impl<Q: Queue> Shared<Q> {
    /// Closes the queue if it is of no use. The registry is locked meanwhile.
    fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_closed = !state.queue.is_of_use();
        state.is_closed
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        lock(&self.state)
    }
}

fn count(before: usize, after: usize) {
    if before < after {
        WAITING.fetch_add(after - before, Ordering::Relaxed);
    } else if before > after {
        WAITING.fetch_sub(before - after, Ordering::Relaxed);
    }
}
