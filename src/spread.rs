//! What every request holds on to for a moment.

use std::{
    array, fmt,
    ops::Deref,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A counted pointer of which each thread counts its own copies.
///
/// One count for all would be written to by all threads, twice with each
/// request, and wander from core to core. Here each thread has a copy of the value
/// beside a count of its own; they are made from the first when a thread first
/// asks, and go with the last pointer to any of them.
pub(crate) struct Spread<T> {
    own: Arc<Own<T>>,
    /// Held by copies that the first thread made, and by whatever is copied from
    /// another thread. A request's own, which comes and goes, holds none.
    all: OnceLock<Option<Arc<Owns<T>>>>,
}

/// One thread's, in cache lines of its own with its count.
#[repr(align(64))]
struct Own<T> {
    value: T,
    /// The number of its thread.
    of: usize,
    all: Weak<Owns<T>>,
}

struct Owns<T>([OnceLock<Arc<Own<T>>>; MOST]);

/// Further threads share with others.
const MOST: usize = 64;

/// By the order in which they first asked.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THIS: usize = THREADS.fetch_add(1, Ordering::Relaxed) % MOST;
    }
    // Where the thread has ended already, any will do.
    THIS.try_with(|this| *this).unwrap_or_default()
}

impl<T: Clone> Owns<T> {
    fn of(self: &Arc<Self>, thread: usize, value: &T) -> Option<&Arc<Own<T>>> {
        let own = || {
            Arc::new(Own {
                value: value.clone(),
                of: thread,
                all: Arc::downgrade(self),
            })
        };
        Some(self.0.get(thread)?.get_or_init(own))
    }
}

impl<T: Clone> Spread<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::of(value, this_thread())
    }

    fn of(value: T, thread: usize) -> Self {
        let all = Arc::new(Owns(array::from_fn(|_| OnceLock::new())));
        let own = Arc::new(Own {
            value,
            of: thread,
            all: Arc::downgrade(&all),
        });
        // It is the first, so the place is free.
        let _ = all.0.get(thread).map(|place| place.set(Arc::clone(&own)));
        Self {
            own,
            all: OnceLock::from(Some(all)),
        }
    }

    #[inline]
    fn copy_for(&self, thread: usize) -> Self {
        if self.own.of == thread {
            // It may be the one that stays: a router is built from copies.
            return Self {
                own: Arc::clone(&self.own),
                all: self.all.clone(),
            };
        }
        Self {
            own: Arc::clone(self.of_another(thread)),
            all: OnceLock::new(),
        }
    }

    fn of_another(&self, thread: usize) -> &Arc<Own<T>> {
        let all = self.all.get_or_init(|| self.own.all.upgrade());
        let other = all.as_ref().and_then(|all| all.of(thread, &self.own.value));
        other.unwrap_or(&self.own)
    }
}

impl<T: Clone> Clone for Spread<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.copy_for(this_thread())
    }
}

impl<T> Deref for Spread<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.own.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn own<T>(spread: &Spread<T>) -> *const Own<T> {
        Arc::as_ptr(&spread.own)
    }

    fn each_of_one() -> (Arc<()>, Spread<Arc<()>>) {
        let value = Arc::new(());
        (Arc::clone(&value), Spread::of(value, 3))
    }

    #[test]
    fn each_thread_counts_in_a_place_of_its_own() {
        let (value, first) = each_of_one();
        assert_eq!(own(&first.copy_for(3)), own(&first));
        let copies = [0, 1, MOST - 1].map(|thread| (thread, first.copy_for(thread)));
        for (thread, copy) in &copies {
            assert!(Arc::ptr_eq(copy, &value));
            assert_eq!(Arc::strong_count(&copy.own), 2, "this copy, and the place");
            for (other, of_other) in &copies {
                assert_eq!(own(copy) == own(of_other), thread == other);
                // A copy that has come to another thread finds that one's place.
                assert_eq!(own(&copy.copy_for(*other)), own(of_other));
            }
            assert_eq!(own(&copy.copy_for(3)), own(&first));
        }
    }

    #[test]
    fn a_thread_is_the_same_each_time() {
        let first = Spread::new(());
        assert_eq!(own(&first.clone()), own(&first));
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(own(&first.clone()), own(&first.clone())));
        });
    }

    #[test]
    fn the_value_goes_with_the_last_pointer() {
        let (value, first) = each_of_one();
        let copy = first.copy_for(5);
        assert_eq!(Arc::strong_count(&value), 3);
        drop(first);
        assert_eq!(Arc::strong_count(&value), 2, "only what is still held");
        let more = copy.copy_for(3);
        assert_eq!(own(&more), own(&copy), "no other place is left");
        drop((copy, more));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// As a router does with a layer: it keeps copies of it.
    #[test]
    fn copies_of_the_first_thread_know_the_places_of_all() {
        let (_, first) = each_of_one();
        let kept = first.copy_for(3).copy_for(3);
        drop(first);
        let [one, other] = [1, 2].map(|thread| kept.copy_for(thread));
        assert_ne!(own(&one), own(&other));
        assert_ne!(own(&one), own(&kept));
    }
}
