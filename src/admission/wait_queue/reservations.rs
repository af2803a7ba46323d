//! The line for a bucket that reserves.
//!
//! A reservation is units that a waiting caller took in advance, and the instant from which they
//! are its own.
//!
//! A reservation in the middle of a bucket cannot be refunded: other callers have their times
//! behind it. So the units that the waiters of this process reserved are one stock, which they use
//! in order. When a waiter leaves, those behind it move up, and the last units are left over and
//! refunded. They stay taken if a waiter of another process reserved behind them.

use std::{collections::BTreeMap, mem, sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use super::{
    Bucket,
    line::{Line, Turns},
    registry::{Lines, Place, Queue},
};

pub(super) static LINES: Lines<Reserved> = Lines::new();

/// The units that waiters have reserved and not used.
#[derive(Default)]
pub(crate) struct Reserved {
    /// Where each run of units starts and ends, in the nanoseconds of the bucket's refill.
    runs: BTreeMap<u64, u64>,
    /// How many units the latest waiter waits for, and whether other waiters differ.
    level_ns: u64,
    is_mixed: bool,
    /// The result of one refund decides on the next.
    is_refunding: bool,
    /// The bucket was reset or credited: the units are not the ones that it will refill.
    is_void: bool,
}

pub(crate) struct Reserving {
    level_ns: u64,
    /// Where its own reservation ends, and when that comes.
    end_ns: u64,
    latest: Instant,
}

/// A place in the line for a bucket that reserves, until it is dropped.
pub(crate) type Reservation = Place<Reserved>;

/// A refund of the last units. It is valid if the bucket is full again in exactly the microsecond
/// in which they end.
pub(crate) struct TailRefund {
    queue: Arc<Queue<Reserved>>,
    start_ns: u64,
    end_ns: u64,
}

impl Reserving {
    /// Returns when the turn comes of a waiter whose units start at `start_ns`.
    fn turn(&self, start_ns: u64) -> Instant {
        let end_ns = start_ns.saturating_add(self.level_ns);
        let sooner = Duration::from_nanos(self.end_ns.saturating_sub(end_ns));
        self.latest.checked_sub(sooner).unwrap_or(self.latest)
    }
}

impl Reserved {
    fn add(&mut self, mut start_ns: u64, mut end_ns: u64) {
        let before = self.runs.range(..start_ns).next_back();
        if let Some((before, _)) = before.filter(|(_, end)| **end == start_ns) {
            start_ns = *before;
        }
        if let Some(end) = self.runs.remove(&end_ns) {
            end_ns = end;
        }
        if start_ns < end_ns {
            self.runs.insert(start_ns, end_ns);
        }
    }

    fn overlaps(&self, start_ns: u64, end_ns: u64) -> bool {
        let before = self.runs.range(..end_ns).next_back();
        before.is_some_and(|(_, end)| *end > start_ns)
    }

    /// Returns where the first run of at least `level_ns` starts. Shorter runs count as used: what
    /// is between them belongs to other processes.
    fn first_run(&mut self, level_ns: u64) -> Option<u64> {
        while let Some(run) = self.runs.first_entry() {
            if run.get() - run.key() >= level_ns {
                return Some(*run.key());
            }
            run.remove();
        }
        None
    }
}

impl Turns for Reserved {
    type Waiter = Reserving;

    fn turn(&mut self, waiter: &Reserving, ahead: Option<(u64, Instant)>) -> Instant {
        match ahead {
            None => self.first_run(waiter.level_ns),
            Some(_) => None,
        }
        .map_or(waiter.latest, |start_ns| waiter.turn(start_ns))
    }

    fn take(&mut self, waiter: &Reserving) {
        if let Some(start_ns) = self.first_run(waiter.level_ns) {
            let end_ns = self.runs.remove(&start_ns).unwrap_or(start_ns);
            self.add(start_ns.saturating_add(waiter.level_ns), end_ns);
        }
    }
}

impl Line<Reserved> {
    /// Returns how many units the waiters wait for that are behind a new one; `None` if it must
    /// wait in another line.
    fn behind(&self, start_ns: u64) -> Option<u64> {
        let turns = &self.turns;
        let mut ends = turns.runs.values();
        if ends.next_back().is_none_or(|end_ns| *end_ns <= start_ns) {
            return Some(0);
        }
        // Its answer is late. Where callers wait for different units, it has no place among them.
        let places = |(start, end)| (end - start) / turns.level_ns.max(1);
        let before: u64 = turns.runs.range(..start_ns).map(places).sum();
        let behind = self.wanted.saturating_sub(before * turns.level_ns);
        (!turns.is_mixed).then_some(behind)
    }

    /// Takes out the last units that no waiter needs, unless their refund was tried.
    fn take_tail(&mut self, tried_ns: Option<u64>) -> Option<(u64, u64)> {
        let (start_ns, end_ns) = self.turns.runs.last_key_value().map(|(s, e)| (*s, *e))?;
        let needed_ns = match self.last() {
            Some(last) if self.turns.runs.len() > 1 => last.end_ns.max(start_ns),
            // The waiters use the only run from its start.
            _ => start_ns.saturating_add(self.wanted),
        };
        let turns = &mut self.turns;
        let is_tried = tried_ns == Some(end_ns);
        if needed_ns >= end_ns || is_tried || turns.is_refunding || turns.is_void {
            return None;
        }
        turns.is_refunding = true;
        turns.runs.remove(&start_ns);
        turns.add(start_ns, needed_ns);
        Some((needed_ns, end_ns))
    }

    /// Keeps units that were not refunded, for waiters whose turn is yet to come.
    fn put_back(&mut self, start_ns: u64, end_ns: u64) {
        let is_to_come = |first: &Reserving| first.turn(start_ns) > Instant::now();
        if self.first().is_none_or(is_to_come) && !self.turns.overlaps(start_ns, end_ns) {
            self.turns.add(start_ns, end_ns);
        }
    }
}

impl Reservation {
    /// Enters a place of this level. Also returns the units that can be refunded, now that one
    /// more place is known.
    pub(crate) fn new(
        bucket: &Bucket,
        latest: Instant,
        end_ns: u64,
        level_ns: u64,
    ) -> (Self, Option<TailRefund>) {
        let start_ns = end_ns.saturating_sub(level_ns);
        let enter = |line: &mut Line<Reserved>| {
            line.turns.is_void |= line.turns.overlaps(start_ns, end_ns);
            if line.turns.is_void {
                return None;
            }
            let level_before_ns = mem::replace(&mut line.turns.level_ns, level_ns);
            line.turns.is_mixed |= ![0, level_ns].contains(&level_before_ns);
            let waiter = Reserving {
                level_ns,
                end_ns,
                latest,
            };
            if line.first().is_none() {
                let now = Instant::now();
                line.turns
                    .runs
                    .retain(|start_ns, _| waiter.turn(*start_ns) > now);
            }
            let behind_ns = line.behind(start_ns)?;
            line.turns.add(start_ns, end_ns);
            Some(line.add(behind_ns, level_ns, waiter))
        };
        let mut queue = Queue::find_or_add(&LINES, bucket);
        loop {
            if let Some(place) = Self::enter(&queue, enter) {
                return (place, TailRefund::new(queue, None));
            }
            queue = queue.replace();
        }
    }

    /// Returns whether its turn has come.
    pub(crate) fn has_come(&self) -> bool {
        let sleep = |line: &mut Line<_>| line.sleep(self.ticket, Waker::noop());
        self.queue.change(sleep).is_none()
    }

    /// Leaves before its turn has come.
    pub(crate) fn leave(self) -> Option<TailRefund> {
        let queue = Arc::clone(&self.queue);
        drop(self);
        TailRefund::new(queue, None)
    }
}

impl TailRefund {
    fn new(queue: Arc<Queue<Reserved>>, tried_ns: Option<u64>) -> Option<Self> {
        let (start_ns, end_ns) = queue.change(|line| line.take_tail(tried_ns))?;
        Some(Self {
            queue,
            start_ns,
            end_ns,
        })
    }

    pub(crate) const fn level_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// Returns the mark of the bucket at which the units were taken.
    pub(crate) const fn taken_at(&self) -> u64 {
        self.end_ns / 1_000
    }

    /// Records how much was refunded; `None` if that is unknown. Then a caller of another process
    /// may have the units. Returns the next refund.
    pub(crate) fn refunded(self, level_ns: Option<u64>) -> Option<Self> {
        let queue = Arc::clone(&self.queue);
        let (start_ns, end_ns) = (self.start_ns, self.end_ns);
        if level_ns == Some(0) {
            queue.change(|line| line.put_back(start_ns, end_ns));
        }
        drop(self);
        Self::new(queue, Some(end_ns))
    }
}

impl Drop for TailRefund {
    fn drop(&mut self) {
        self.queue.change(|line| line.turns.is_refunding = false);
    }
}
