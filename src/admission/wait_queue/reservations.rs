//! The queue for one bucket that reserves: the places of its waiters, and the gaps that
//! waiters left.
//!
//! A *run* is a row of places without a gap between them, kept as one tree. When a waiter
//! leaves, all places behind it in its run move up by its length, and the gap ends up behind
//! the run.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    registry::Queue,
    sequence::{Id, NONE, Sequences},
};
use crate::util::time::later;

#[derive(Default)]
pub(super) struct ReservationQueue {
    pub(super) places: Sequences,
    /// Where each run starts, and its root.
    starts: BTreeSet<(u64, Id)>,
    /// Where each run ends, and its root.
    ends: BTreeSet<(u64, Id)>,
    /// The gaps that are not refunded yet, by where they start.
    pub(super) gaps: BTreeMap<(u64, u64), Gap>,
    /// The number of the latest gap.
    gaps_made: u64,
    /// The bucket was reset or credited: some places overlap others.
    has_overlaps: bool,
    /// The gap whose refund is under way. Until the result is known, the place of the waiter
    /// right behind it is not known either.
    pub(super) refunding: Option<Gap>,
    /// The last gap whose refund was tried.
    tried: Option<Gap>,
}

/// The nanoseconds of a bucket's refill that a place waits for. It ends when the bucket is
/// full again, after this place and all places before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    number: u64,
    pub(super) span: Span,
    /// From then on, its first part counts as used, and no place moves up into it.
    pub(super) moment: Instant,
    /// From then on, all of it counts as used.
    pub(super) last_moment: Instant,
}

/// In a queue with overlaps, at most this number of gaps and runs are considered. The rest
/// counts as used, which never admits too much.
const MAX_CONSIDERED: usize = 32;

impl Span {
    pub(super) const fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    const fn overlaps(self, other: Self) -> bool {
        self.start_ns < other.end_ns && other.start_ns < self.end_ns
    }
}

impl Gap {
    const fn key(&self) -> (u64, u64) {
        (self.span.start_ns, self.number)
    }

    /// Moves behind places of this length.
    fn pass(&mut self, length_ns: u64) {
        let length = Duration::from_nanos(length_ns);
        self.span.start_ns += length_ns;
        self.span.end_ns += length_ns;
        self.moment = later(self.moment, length);
        self.last_moment = later(self.last_moment, length);
    }
}

impl Queue for ReservationQueue {
    /// Returns whether it has waiters, or gaps that may still be refunded.
    fn is_needed(&mut self) -> bool {
        self.forget_passed();
        self.places.len() > 0 || self.refunding.is_some() || !self.gaps.is_empty()
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl ReservationQueue {
    pub(super) fn enter(&mut self, span: Span) -> (Id, Vec<Waker>) {
        self.forget_taken_again(span);
        self.forget_passed();
        self.has_overlaps |= self.is_taken(span);
        let place = self.places.add(span.start_ns, span.length_ns());
        let mut run = place;
        if let Some(behind) = first_at(&self.starts, span.end_ns) {
            self.take_run(behind);
            run = self.places.join(run, behind);
        }
        self.put_run(run);
        let before = self.gaps.range(..(span.start_ns, 0)).next_back();
        let before = before.map(|(key, _)| *key);
        (place, self.move_up(before))
    }

    /// Takes out a place whose waiter leaves before its moment. The moment follows from where
    /// the place starts.
    pub(super) fn leave(&mut self, place: Id, moment: impl FnOnce(u64) -> Instant) -> Vec<Waker> {
        let (run, start_ns) = self.places.locate(place);
        let moment = moment(start_ns);
        if moment <= Instant::now() {
            self.take_out(place);
            return Vec::new();
        }
        let mut woken = Vec::new();
        self.take_run(run);
        let length_ns = self.places.length(place);
        let end_ns = self.places.start(run) + self.places.sum(run);
        let run = self.places.close_up(place);
        if run != NONE {
            self.places.wake(run, &mut woken);
            self.put_run(run);
        }
        self.gaps_made += 1;
        let mut gap = Gap {
            number: self.gaps_made,
            span: Span {
                start_ns,
                end_ns: start_ns + length_ns,
            },
            moment,
            last_moment: moment,
        };
        gap.pass(end_ns - gap.span.end_ns);
        self.gaps.insert(gap.key(), gap);
        woken.append(&mut self.settle(gap));
        woken
    }

    /// Takes out a place whose units are used. The other places stay where they are.
    pub(super) fn take_out(&mut self, place: Id) {
        let (run, _) = self.places.locate(place);
        self.take_run(run);
        let (before, behind) = self.places.remove(place);
        self.put_run(before);
        self.put_run(behind);
    }

    fn take_run(&mut self, run: Id) {
        let start_ns = self.places.start(run);
        self.starts.remove(&(start_ns, run));
        self.ends.remove(&(start_ns + self.places.sum(run), run));
    }

    /// Adds a run, and joins it with the run that ends where it starts.
    fn put_run(&mut self, mut run: Id) {
        if run == NONE {
            return;
        }
        if let Some(before) = first_at(&self.ends, self.places.start(run)) {
            self.take_run(before);
            run = self.places.join(before, run);
        }
        let start_ns = self.places.start(run);
        self.starts.insert((start_ns, run));
        self.ends.insert((start_ns + self.places.sum(run), run));
    }

    /// Removes the gaps that a new place overlaps. Its units can have been taken only after
    /// those gaps were refunded in full.
    fn forget_taken_again(&mut self, span: Span) {
        while let Some((key, gap)) = self.gaps.range(..(span.end_ns, 0)).next_back() {
            if !gap.span.overlaps(span) {
                break;
            }
            let key = *key;
            self.gaps.remove(&key);
        }
        if self.has_overlaps {
            self.gaps.retain(|_, gap| !gap.span.overlaps(span));
        }
    }

    /// Removes the gaps that count as used in full.
    fn forget_passed(&mut self) {
        let now = Instant::now();
        if self.has_overlaps {
            self.gaps.retain(|_, gap| gap.last_moment > now);
        }
        while let Some(first) = self.gaps.first_entry() {
            if first.get().last_moment > now {
                break;
            }
            first.remove();
        }
    }

    /// Returns whether a span overlaps a run.
    fn is_taken(&self, span: Span) -> bool {
        let mut before = self.starts.range(..(span.end_ns, NONE));
        before.next_back().is_some_and(|&(start_ns, run)| {
            start_ns + self.places.sum(run) > span.start_ns && span.length_ns() > 0
        })
    }

    /// Restores the order of places and gaps after a gap has changed.
    fn settle(&mut self, changed: Gap) -> Vec<Waker> {
        self.forget_passed();
        self.move_up(Some(changed.key()))
    }

    /// Moves up the run right behind the gap that changed, and then the runs behind the gaps
    /// that it comes to touch. Without overlaps, no run is right behind any other gap.
    fn move_up(&mut self, changed: Option<(u64, u64)>) -> Vec<Waker> {
        let mut woken = Vec::new();
        if !self.has_overlaps {
            let mut next = changed;
            while let Some(key) = next {
                next = self.move_up_behind(key, &mut woken);
            }
            return woken;
        }
        while self.gaps.len() > MAX_CONSIDERED {
            self.gaps.pop_first();
        }
        // A place that moves up may end up right behind any other gap.
        let mut before = BTreeMap::new();
        while before != self.gaps {
            before.clone_from(&self.gaps);
            for key in before.keys().rev() {
                self.move_up_behind(*key, &mut woken);
            }
        }
        woken
    }

    /// Moves the gap behind the run that follows it. Returns the next gap if the two now
    /// touch.
    fn move_up_behind(&mut self, key: (u64, u64), woken: &mut Vec<Waker>) -> Option<(u64, u64)> {
        let (now, refunding) = (Instant::now(), self.refunding);
        let stays = |gap: &Gap| gap.moment <= now || refunding == Some(*gap);
        let mut gap = self.gaps.get(&key).copied().filter(|gap| !stays(gap))?;
        let before = self.gaps.range(..key).next_back().map(|(_, gap)| *gap);
        let before = before.filter(|before| before.span.end_ns == gap.span.start_ns);
        self.gaps.remove(&key);
        if let Some(before) = before.filter(|before| !stays(before)) {
            (gap.span.start_ns, gap.moment) = (before.span.start_ns, before.moment);
            self.gaps.remove(&before.key());
        }
        while let Some(run) = self.run_at(gap.span.end_ns) {
            self.take_run(run);
            self.places.set_start(run, gap.span.start_ns);
            self.places.wake(run, woken);
            gap.pass(self.places.sum(run));
            self.put_run(run);
        }
        self.gaps.insert(gap.key(), gap);
        let next = self.gaps.range((gap.span.start_ns, gap.number + 1)..);
        let (next, touched) = next.take(1).next()?;
        (touched.span.start_ns == gap.span.end_ns).then_some(*next)
    }

    /// Returns the run that starts there. If places overlap, a longer run is split there.
    fn run_at(&mut self, start_ns: u64) -> Option<Id> {
        let run = first_at(&self.starts, start_ns);
        if run.is_some() || !self.has_overlaps {
            return run;
        }
        let runs = self
            .starts
            .range(..(start_ns, NONE))
            .rev()
            .take(MAX_CONSIDERED);
        let place = |(_, run): &(u64, Id)| self.places.starting_at(*run, start_ns);
        let place = runs.filter_map(place).next()?;
        let (run, _) = self.places.locate(place);
        self.take_run(run);
        let (before, behind) = self.places.split_before(place);
        for (run, end_ns) in [
            (before, start_ns),
            (behind, start_ns + self.places.sum(behind)),
        ] {
            self.starts.insert((self.places.start(run), run));
            self.ends.insert((end_ns, run));
        }
        Some(behind)
    }

    /// Returns whether no place starts there or later.
    fn is_last(&self, start_ns: u64) -> bool {
        for &(end_ns, run) in self.ends.iter().rev().take(MAX_CONSIDERED) {
            if end_ns <= start_ns {
                return true;
            }
            if end_ns - self.places.length(self.places.last(run)) >= start_ns {
                return false;
            }
        }
        self.ends.len() <= MAX_CONSIDERED
    }

    /// Returns the gap to refund next. One refund is under way at a time, because its result
    /// decides on the next.
    pub(super) fn next_refund(&mut self) -> Option<Gap> {
        let (_, gap) = self.gaps.last_key_value()?;
        let gap = *gap;
        if self.refunding.is_some() || self.tried == Some(gap) || !self.is_last(gap.span.start_ns) {
            return None;
        }
        self.refunding = Some(gap);
        Some(gap)
    }

    /// Records the end of a refund. `is_there`: nothing was refunded, so the gap stays.
    pub(super) fn tried(&mut self, tried: Gap, is_there: bool) -> Vec<Waker> {
        self.refunding = None;
        self.tried = Some(tried);
        if !is_there {
            self.forget(tried);
        }
        self.settle(tried)
    }

    /// Removes a gap, because the result of its refund is unknown.
    pub(super) fn give_up(&mut self, refunding: Gap) {
        self.refunding = None;
        self.forget(refunding);
    }

    /// Returns the spans of all places, in no particular order.
    #[cfg(test)]
    pub(super) fn spans(&self) -> Vec<Span> {
        let runs = self.starts.iter();
        let items = runs.flat_map(|(_, run)| self.places.items(*run));
        let span = |(place, start_ns)| Span {
            start_ns,
            end_ns: start_ns + self.places.length(place),
        };
        items.map(span).collect()
    }

    fn forget(&mut self, gap: Gap) {
        if self.gaps.get(&gap.key()) == Some(&gap) {
            self.gaps.remove(&gap.key());
        }
    }
}

/// Returns the first of the runs that start (or end) there.
fn first_at(runs: &BTreeSet<(u64, Id)>, at_ns: u64) -> Option<Id> {
    let mut there = runs.range((at_ns, NONE)..=(at_ns, Id::MAX));
    there.next().map(|(_, run)| *run)
}
