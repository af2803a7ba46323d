//! Counters that many threads add to without waiting.
//!
//! Each thread adds to counters of its own, its shard. (That of a memory store is a part of its buckets,
//! under one lock.)

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use crate::util::thread_number::{NUMBERS, known_number, own_number};

/// The counters of a cache line.
pub(super) const LINE: usize = 8;

/// A fixed number of counters, in lines of [`LINE`].
///
/// Each thread adds to a shard of its own, which no other thread writes: it reads a counter and
/// writes the next number, without an atomic addition. Readers add up all shards.
///
/// **No addition is lost.** A thread writes to the shard of its [number](own_number). While it has
/// that number, no other thread has it. All that the former owner wrote happened before, and the
/// new owner continues from the last value. Threads without a number add atomically to a shard
/// that no thread owns.
///
/// **A counter never goes back**: a reader that reads one twice sees the order in which it was
/// written. Different counters are read one after the other, so a request may be in one of them
/// and not yet in the next.
pub(super) struct Counters {
    own: [OnceLock<Box<[Line]>>; NUMBERS],
    shared: Box<[Line]>,
}

/// Threads write to different lines, so that no thread has to fetch the line of another.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

impl Counters {
    pub(super) fn new(lines: usize) -> Self {
        Self {
            own: [const { OnceLock::new() }; NUMBERS],
            shared: new_shard(lines),
        }
    }

    /// Adds 1 to a counter, if there is one.
    #[inline]
    pub(super) fn add(&self, line: usize, place: usize) {
        let own = self.own.get(known_number());
        match own.and_then(OnceLock::get) {
            Some(shard) => add_alone(shard, line, place),
            None => self.add_first(line, place),
        }
    }

    /// Adds in a thread that counts here for the first time, or in one without a number.
    fn add_first(&self, line: usize, place: usize) {
        if let Some(own) = self.own.get(own_number()) {
            let shard = own.get_or_init(|| new_shard(self.shared.len()));
            add_alone(shard, line, place);
        } else if let Some(counter) = counter(&self.shared, line, place) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counters of a line, over all threads.
    pub(super) fn sum(&self, line: usize) -> [u64; LINE] {
        let mut sums = [0_u64; LINE];
        let own = self.own.iter().filter_map(OnceLock::get);
        for shard in own.chain([&self.shared]) {
            let Some(Line(counters)) = shard.get(line) else {
                continue;
            };
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

fn new_shard(lines: usize) -> Box<[Line]> {
    (0..lines).map(|_| Line::default()).collect()
}

fn counter(shard: &[Line], line: usize, place: usize) -> Option<&AtomicU64> {
    shard.get(line)?.0.get(place)
}

/// Adds 1 to a counter of a shard that only this thread writes.
#[inline]
fn add_alone(shard: &[Line], line: usize, place: usize) {
    if let Some(counter) = counter(shard, line, place) {
        let next = counter.load(Ordering::Relaxed).wrapping_add(1);
        counter.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::{
        cell::Cell,
        sync::{Barrier, atomic::AtomicUsize},
        thread,
    };

    use super::*;

    /// Most threads end before others start, so that numbers change owners.
    #[test]
    fn threads_that_come_and_go_lose_nothing() {
        const ADDITIONS: u64 = 2_000;
        const THREADS: usize = 600;

        let counters = Counters::new(2);
        let started = AtomicUsize::new(0);
        thread::scope(|scope| {
            // Four at a time start and end threads.
            for _ in 0..4 {
                scope.spawn(|| {
                    while started.fetch_add(1, Ordering::Relaxed) < THREADS {
                        thread::scope(|scope| {
                            scope.spawn(|| add(&counters, ADDITIONS));
                        });
                    }
                });
            }
        });
        let expected = THREADS as u64 * ADDITIONS;
        assert_eq!(counters.sum(0), [0, 0, 0, expected, 0, 0, 0, 0]);
        assert_eq!(counters.sum(1), [expected, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// More threads at once than there are numbers.
    #[test]
    fn threads_without_a_number_lose_nothing() {
        const ADDITIONS: u64 = 500;
        const THREADS: usize = 2 * NUMBERS;

        let counters = Counters::new(2);
        let (together, without) = (Barrier::new(THREADS), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    add(&counters, ADDITIONS);
                    let is_without = known_number() >= NUMBERS;
                    without.fetch_add(usize::from(is_without), Ordering::Relaxed);
                    together.wait();
                });
            }
        });
        let expected = THREADS as u64 * ADDITIONS;
        assert_eq!(counters.sum(1), [expected, 0, 0, 0, 0, 0, 0, 0]);
        assert!(without.into_inner() >= THREADS - NUMBERS);
    }

    /// A thread-local value of the application may count while its thread ends, before and after
    /// this crate's own value is dropped.
    #[test]
    fn a_thread_that_ends_can_still_count() {
        struct CountsAtEnd(&'static Counters);

        impl Drop for CountsAtEnd {
            fn drop(&mut self) {
                add(self.0, 1);
            }
        }

        thread_local! {
            static BEFORE: Cell<Option<CountsAtEnd>> = const { Cell::new(None) };
            static AFTER: Cell<Option<CountsAtEnd>> = const { Cell::new(None) };
        }

        let counters: &Counters = Box::leak(Box::new(Counters::new(2)));
        let thread = thread::spawn(|| {
            BEFORE.set(Some(CountsAtEnd(counters)));
            add(counters, 1);
            AFTER.set(Some(CountsAtEnd(counters)));
        });
        thread.join().expect("a thread that counts");
        assert_eq!(counters.sum(1), [3, 0, 0, 0, 0, 0, 0, 0]);
    }

    fn add(counters: &Counters, times: u64) {
        for _ in 0..times {
            counters.add(0, 3);
            counters.add(1, 0);
            // This counter does not exist.
            counters.add(2, 0);
            counters.add(0, LINE);
        }
    }
}
