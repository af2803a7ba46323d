//! One line for a bucket that reserves places: its waiters, and the holes that
//! waiters left.
//!
//! A *run* is a row of places without a gap, kept as one tree: a waiter that leaves
//! moves all behind it in its run up by its length, and a hole remains behind the run.

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
pub(super) struct Line {
    pub(super) places: Sequences,
    /// Where each run starts, and its root.
    starts: BTreeSet<(u64, Id)>,
    /// Where each run ends, and its root.
    ends: BTreeSet<(u64, Id)>,
    /// Not refunded yet, by where they start.
    pub(super) holes: BTreeMap<(u64, u64), Hole>,
    /// How many holes there were.
    numbers: u64,
    /// The bucket was reset or credited: some places overlap others.
    is_mixed: bool,
    /// The refund that is under way. Until its result is known, the place of the
    /// waiter right behind it is not known either.
    pub(super) giving: Option<Hole>,
    /// What could not be refunded.
    tried: Option<Hole>,
}

/// The nanoseconds of a bucket's refill that one waits for, up to the one at which
/// the bucket is full again, by this place and all before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hole {
    number: u64,
    pub(super) span: Span,
    /// From then on its first part counts as used, and no place moves up to it.
    pub(super) moment: Instant,
    /// From then on all of it does.
    pub(super) last_moment: Instant,
}

/// In a mixed line so many holes and runs are considered at most. Whatever is not
/// counts as used, which never admits too much.
const FEW: usize = 32;

impl Span {
    pub(super) const fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    const fn overlaps(self, other: Self) -> bool {
        self.start_ns < other.end_ns && other.start_ns < self.end_ns
    }
}

impl Hole {
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

impl Queue for Line {
    /// A waiter stands in it, or what was left may still be refunded.
    fn is_of_use(&mut self) -> bool {
        self.forget_passed();
        self.places.len() > 0 || self.giving.is_some() || !self.holes.is_empty()
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl Line {
    pub(super) fn enter(&mut self, span: Span) -> (Id, Vec<Waker>) {
        self.forget_taken_again(span);
        self.forget_passed();
        self.is_mixed |= self.is_taken(span);
        let place = self.places.add(span.start_ns, span.length_ns());
        let mut run = place;
        if let Some(behind) = first_at(&self.starts, span.end_ns) {
            self.take_run(behind);
            run = self.places.join(run, behind);
        }
        self.put_run(run);
        let before = self.holes.range(..(span.start_ns, 0)).next_back();
        let before = before.map(|(key, _)| *key);
        (place, self.move_up(before))
    }

    /// Leaves before its moment, which follows from where it starts.
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
        self.numbers += 1;
        let mut hole = Hole {
            number: self.numbers,
            span: Span {
                start_ns,
                end_ns: start_ns + length_ns,
            },
            moment,
            last_moment: moment,
        };
        hole.pass(end_ns - hole.span.end_ns);
        self.holes.insert(hole.key(), hole);
        woken.append(&mut self.settle(hole));
        woken
    }

    /// Leaves what it waited for to be used.
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

    /// A run that ends where another starts becomes one with it.
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

    /// What was taken again had been refunded, all of it.
    fn forget_taken_again(&mut self, span: Span) {
        while let Some((key, hole)) = self.holes.range(..(span.end_ns, 0)).next_back() {
            if !hole.span.overlaps(span) {
                break;
            }
            let key = *key;
            self.holes.remove(&key);
        }
        if self.is_mixed {
            self.holes.retain(|_, hole| !hole.span.overlaps(span));
        }
    }

    /// What counts as used, all of it, is no hole.
    fn forget_passed(&mut self) {
        let now = Instant::now();
        if self.is_mixed {
            self.holes.retain(|_, hole| hole.last_moment > now);
        }
        while let Some(first) = self.holes.first_entry() {
            if first.get().last_moment > now {
                break;
            }
            first.remove();
        }
    }

    /// Whether a span overlaps with that of a run.
    fn is_taken(&self, span: Span) -> bool {
        let mut before = self.starts.range(..(span.end_ns, NONE));
        before.next_back().is_some_and(|&(start_ns, run)| {
            start_ns + self.places.sum(run) > span.start_ns && span.length_ns() > 0
        })
    }

    /// After a hole has changed.
    fn settle(&mut self, changed: Hole) -> Vec<Waker> {
        self.forget_passed();
        self.move_up(Some(changed.key()))
    }

    /// Moves the run up that stands right behind the hole that changed, and then
    /// those behind the holes that it comes to touch. No run is behind the others,
    /// unless the line is mixed.
    fn move_up(&mut self, changed: Option<(u64, u64)>) -> Vec<Waker> {
        let mut woken = Vec::new();
        if !self.is_mixed {
            let mut next = changed;
            while let Some(key) = next {
                next = self.move_up_behind(key, &mut woken);
            }
            return woken;
        }
        while self.holes.len() > FEW {
            self.holes.pop_first();
        }
        // A place that moves up may come to stand behind any other hole.
        let mut before = BTreeMap::new();
        while before != self.holes {
            before.clone_from(&self.holes);
            for key in before.keys().rev() {
                self.move_up_behind(*key, &mut woken);
            }
        }
        woken
    }

    /// Moves the hole behind the run that stands right behind it. Returns the next
    /// hole, if it comes to touch that one.
    fn move_up_behind(&mut self, key: (u64, u64), woken: &mut Vec<Waker>) -> Option<(u64, u64)> {
        let (now, giving) = (Instant::now(), self.giving);
        let stays = |hole: &Hole| hole.moment <= now || giving == Some(*hole);
        let mut hole = self.holes.get(&key).copied().filter(|hole| !stays(hole))?;
        let before = self.holes.range(..key).next_back().map(|(_, hole)| *hole);
        let before = before.filter(|before| before.span.end_ns == hole.span.start_ns);
        self.holes.remove(&key);
        if let Some(before) = before.filter(|before| !stays(before)) {
            (hole.span.start_ns, hole.moment) = (before.span.start_ns, before.moment);
            self.holes.remove(&before.key());
        }
        while let Some(run) = self.run_at(hole.span.end_ns) {
            self.take_run(run);
            self.places.set_start(run, hole.span.start_ns);
            self.places.wake(run, woken);
            hole.pass(self.places.sum(run));
            self.put_run(run);
        }
        self.holes.insert(hole.key(), hole);
        let next = self.holes.range((hole.span.start_ns, hole.number + 1)..);
        let (next, touched) = next.take(1).next()?;
        (touched.span.start_ns == hole.span.end_ns).then_some(*next)
    }

    /// The run that starts there. In a mixed line that may be part of another.
    fn run_at(&mut self, start_ns: u64) -> Option<Id> {
        let run = first_at(&self.starts, start_ns);
        if run.is_some() || !self.is_mixed {
            return run;
        }
        let runs = self.starts.range(..(start_ns, NONE)).rev().take(FEW);
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

    /// Whether no place starts there or later.
    fn is_last(&self, start_ns: u64) -> bool {
        for &(end_ns, run) in self.ends.iter().rev().take(FEW) {
            if end_ns <= start_ns {
                return true;
            }
            if end_ns - self.places.length(self.places.last(run)) >= start_ns {
                return false;
            }
        }
        self.ends.len() <= FEW
    }

    /// One at a time: the result decides on the next.
    pub(super) fn next_to_give(&mut self) -> Option<Hole> {
        let (_, hole) = self.holes.last_key_value()?;
        let hole = *hole;
        if self.giving.is_some() || self.tried == Some(hole) || !self.is_last(hole.span.start_ns) {
            return None;
        }
        self.giving = Some(hole);
        Some(hole)
    }

    /// The refund has ended, and the hole is still there or not.
    pub(super) fn tried(&mut self, tried: Hole, is_there: bool) -> Vec<Waker> {
        self.giving = None;
        self.tried = Some(tried);
        if !is_there {
            self.forget(tried);
        }
        self.settle(tried)
    }

    /// The result of the refund is unknown.
    pub(super) fn give_up(&mut self, giving: Hole) {
        self.giving = None;
        self.forget(giving);
    }

    /// Those of all places, in no particular order.
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

    fn forget(&mut self, hole: Hole) {
        if self.holes.get(&hole.key()) == Some(&hole) {
            self.holes.remove(&hole.key());
        }
    }
}

/// The first run of those that start, or end, there.
fn first_at(runs: &BTreeSet<(u64, Id)>, at_ns: u64) -> Option<Id> {
    let mut there = runs.range((at_ns, NONE)..=(at_ns, Id::MAX));
    there.next().map(|(_, run)| *run)
}
