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

/// The waiters for one bucket.
pub(super) trait Queue: Default {
    /// Returns whether the registry must keep it.
    fn is_needed(&mut self) -> bool;

    /// Returns how many callers wait.
    fn len(&self) -> usize;
}

/// The queues of all buckets. The registry's own lock is held only to find a queue.
pub(super) struct Registry<Q>(LazyLock<Mutex<Queues<Q>>>);

struct Queues<Q> {
    by_bucket: HashMap<Bucket, Arc<Shared<Q>>>,
    /// Beyond this number of queues, those that are not needed are removed.
    remove_beyond: usize,
}

/// A queue, shared by all that wait in it.
pub(super) struct Shared<Q> {
    bucket: Bucket,
    state: Mutex<State<Q>>,
}

pub(super) struct State<Q> {
    pub(super) queue: Q,
    /// The registry has removed it.
    is_closed: bool,
}

/// How many callers wait in this process. No queue is longer than that.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Returns whether there may be a queue of that length.
pub(super) fn may_be_full(most: usize) -> bool {
    WAITING.load(Ordering::Relaxed) >= most
}

impl<Q: Queue> Registry<Q> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(|| {
            Mutex::new(Queues {
                by_bucket: HashMap::new(),
                remove_beyond: 0,
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

    /// Calls `change` with a queue, and removes the queue if it is not needed afterwards.
    pub(super) fn change<T>(&self, shared: &Shared<Q>, change: impl FnOnce(&mut Q) -> T) -> T {
        let mut state = lock(&shared.state);
        let before = state.queue.len();
        let changed = change(&mut state.queue);
        count(before, state.queue.len());
        let is_needed = state.queue.is_needed();
        drop(state);
        if !is_needed {
            lock(&self.0).forget(shared);
        }
        changed
    }

    /// Returns how many callers wait for a bucket.
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
        if self.by_bucket.len() > self.remove_beyond {
            self.by_bucket.retain(|_, shared| !shared.close());
            self.remove_beyond = 2 * self.by_bucket.len().max(512);
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
        // Meanwhile it may have been closed and replaced, or may be needed again.
        if !lock(&shared.state).is_closed && shared.close() {
            self.by_bucket.remove(&shared.bucket);
        }
    }
}

impl<Q: Queue> Shared<Q> {
    /// Closes the queue if it is not needed. The caller holds the registry's lock.
    fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_closed = !state.queue.is_needed();
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
