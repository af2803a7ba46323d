//! Counters that many threads add to, and none waits for.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The counters of a cache line.
pub(super) const LINE: usize = 8;

/// How many threads have a shard of their own at a time. Further threads share one.
const OWN_SHARDS: usize = 128;

/// A fixed number of counters, in lines of [`LINE`].
///
/// Each thread adds to a shard of its own, which no other thread writes: it reads a counter and
/// writes the next number, without an atomic addition. Readers add up all shards.
///
/// **No addition is lost.** A thread writes to the shard of its [number](ThreadNumber). While it
/// has that number, no other thread has it. A thread gives its number back when it ends, with
/// `Release`, and the next owner takes it with `Acquire`. So all that the former owner wrote
/// happened before, and the new owner continues from the last value. Threads without a number
/// add atomically to a shard that no thread owns.
///
/// **A counter never goes back**: a reader that reads one twice sees the order in which it was
/// written. Different counters are read one after the other, so a request may be in one of them
/// and not yet in the next.
pub(super) struct Counters {
    own: [OnceLock<Shard>; OWN_SHARDS],
    shared: Shard,
}

type Shard = Box<[Line]>;

/// Threads write to different lines, so that none has to fetch the line of another.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

impl Counters {
    pub(super) fn new(lines: usize) -> Self {
        Self {
            own: [const { OnceLock::new() }; OWN_SHARDS],
            shared: new_shard(lines),
        }
    }

    /// Lets `count` add in the shard of this thread.
    #[inline]
    pub(super) fn count(&self, count: impl FnOnce(&Adder<'_>)) {
        let own = ThreadNumber::read().and_then(|number| self.own.get(number)?.get());
        count(&match own {
            Some(own) => Adder {
                shard: own,
                is_own: true,
            },
            None => self.find_shard(),
        });
    }

    /// Finds the shard of a thread that counts here for the first time, or of one without a
    /// number.
    #[cold]
    fn find_shard(&self) -> Adder<'_> {
        let own = ThreadNumber::take().and_then(|number| self.own.get(number));
        match own {
            Some(own) => Adder {
                shard: own.get_or_init(|| new_shard(self.shared.len())),
                is_own: true,
            },
            None => Adder {
                shard: &self.shared,
                is_own: false,
            },
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

fn new_shard(lines: usize) -> Shard {
    (0..lines).map(|_| Line::default()).collect()
}

/// Adds in one shard. It never leaves the thread that it was made for.
pub(super) struct Adder<'a> {
    shard: &'a [Line],
    /// Only this thread writes to the shard.
    is_own: bool,
}

impl Adder<'_> {
    /// Adds 1 to a counter, if there is one.
    #[inline]
    pub(super) fn add(&self, line: usize, place: usize) {
        let line = self.shard.get(line);
        let Some(counter) = line.and_then(|line| line.0.get(place)) else {
            return;
        };
        if self.is_own {
            let next = counter.load(Ordering::Relaxed).wrapping_add(1);
            counter.store(next, Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The number of a thread, below [`OWN_SHARDS`]: the lowest that is free when the thread counts
/// for the first time. Other values say that it has none.
struct ThreadNumber(Cell<usize>);

/// The thread has not counted yet.
const UNKNOWN: usize = usize::MAX;
/// All numbers were taken.
const WITHOUT: usize = usize::MAX - 1;

/// A bit for each number that a thread has.
static TAKEN: [AtomicU64; OWN_SHARDS / 64] = [const { AtomicU64::new(0) }; OWN_SHARDS / 64];

thread_local! {
    static NUMBER: ThreadNumber = const { ThreadNumber(Cell::new(UNKNOWN)) };
}

impl ThreadNumber {
    /// Returns the number of this thread, which is [`OWN_SHARDS`] or higher if it has none.
    /// `None` while the thread ends: then it may have given its number back already.
    #[inline]
    fn read() -> Option<usize> {
        NUMBER.try_with(|number| number.0.get()).ok()
    }

    /// Returns the number of this thread. Takes one if it has not tried yet.
    fn take() -> Option<usize> {
        let number = NUMBER.try_with(|number| {
            if number.0.get() == UNKNOWN {
                number.0.set(take_lowest().unwrap_or(WITHOUT));
            }
            number.0.get()
        });
        number.ok()
    }
}

fn take_lowest() -> Option<usize> {
    // Sets the lowest bit that is 0.
    let free = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
    TAKEN.iter().enumerate().find_map(|(word, taken)| {
        let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, free);
        let bit = usize::try_from(before.ok()?.trailing_ones()).ok()?;
        Some(word * 64 + bit)
    })
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        let number = self.0.get();
        if let Some(taken) = TAKEN.get(number / 64) {
            taken.fetch_and(!(1 << (number % 64)), Ordering::Release);
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::{
        sync::{Barrier, atomic::AtomicUsize},
        thread,
    };

    use super::*;

    /// Threads of which most end before others start, so that numbers change hands.
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
        const THREADS: usize = 2 * OWN_SHARDS;

        let counters = Counters::new(2);
        let (together, without) = (Barrier::new(THREADS), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    add(&counters, ADDITIONS);
                    let is_without = ThreadNumber::read() == Some(WITHOUT);
                    without.fetch_add(usize::from(is_without), Ordering::Relaxed);
                    together.wait();
                });
            }
        });
        let expected = THREADS as u64 * ADDITIONS;
        assert_eq!(counters.sum(1), [expected, 0, 0, 0, 0, 0, 0, 0]);
        assert!(without.into_inner() >= THREADS - OWN_SHARDS);
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
            counters.count(|adder| {
                adder.add(0, 3);
                adder.add(1, 0);
                // There is no such counter.
                adder.add(2, 0);
                adder.add(0, LINE);
            });
        }
    }
}
