//! One line: who stands in it, and the holes of those who left.

use std::{
    sync::{Arc, Mutex},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use super::lock;
use crate::admission::later;

#[derive(Default)]
pub(super) struct Line {
    /// In the order of their turns.
    pub(super) places: Vec<Arc<Mutex<Place>>>,
    /// Left, and not given back yet. In the same order, and none touches the next.
    pub(super) holes: Vec<Hole>,
    /// How many holes there were.
    numbers: u64,
    /// The bucket was reset, or given back to: some stand where others do, too.
    is_mixed: bool,
    /// What is on its way back, one at a time. Until that is known, it is not known
    /// either who stands right behind it.
    pub(super) giving: Option<Hole>,
    /// What could not be given back.
    tried: Option<Hole>,
}

/// The nanoseconds of a bucket's refill that one waits for, up to the one at which
/// the bucket is full again, by this place and all before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

pub(super) struct Place {
    pub(super) moment: Instant,
    pub(super) span: Span,
    pub(super) waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hole {
    number: u64,
    pub(super) span: Span,
    /// From then on its first part is as if used, and nobody moves up to it.
    pub(super) moment: Instant,
    /// From then on all of it is.
    pub(super) last_moment: Instant,
}

impl Span {
    pub(super) const fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    const fn overlaps(self, other: Self) -> bool {
        self.start_ns < other.end_ns && other.start_ns < self.end_ns
    }

    const fn sooner(self, by_ns: u64) -> Self {
        Self {
            start_ns: self.start_ns.saturating_sub(by_ns),
            end_ns: self.end_ns.saturating_sub(by_ns),
        }
    }
}

impl Hole {
    /// The place right behind it moves up by all of it.
    fn get_behind(&mut self, place: &mut Place) -> Option<Waker> {
        let (by_ns, level_ns) = (self.span.length_ns(), place.span.length_ns());
        let sooner = place.moment.checked_sub(Duration::from_nanos(by_ns));
        place.moment = sooner.unwrap_or(place.moment);
        place.span = place.span.sooner(by_ns);
        let level = Duration::from_nanos(level_ns);
        self.span.start_ns += level_ns;
        self.span.end_ns += level_ns;
        self.moment = later(self.moment, level);
        self.last_moment = later(self.last_moment, level);
        place.waker.take()
    }
}

impl Line {
    /// Somebody stands in it, or what was left may still be given back.
    pub(super) fn is_of_use(&self) -> bool {
        let now = Instant::now();
        let is_early = |hole: &Hole| hole.last_moment > now;
        !self.places.is_empty() || self.giving.is_some() || self.holes.iter().any(is_early)
    }

    /// Where those stand who start then or later.
    fn first_from(&self, start_ns: u64) -> usize {
        let is_before = |place: &Arc<Mutex<Place>>| lock(place).span.start_ns < start_ns;
        self.places.partition_point(is_before)
    }

    /// Where the holes are that start then or later.
    fn first_hole_from(&self, start_ns: u64) -> usize {
        let is_before = |hole: &Hole| hole.span.start_ns < start_ns;
        self.holes.partition_point(is_before)
    }

    pub(super) fn enter(&mut self, place: &Arc<Mutex<Place>>) -> Vec<Waker> {
        let span = lock(place).span;
        // What was taken again had been given back, all of it.
        self.holes.retain(|hole| !hole.span.overlaps(span));
        self.forget_passed();
        // Answers may come in another order than decisions were made in.
        let at = self.first_from(span.start_ns);
        self.is_mixed |= self.is_taken(at, span);
        self.places.insert(at, Arc::clone(place));
        self.move_up(self.first_hole_from(span.start_ns).checked_sub(1))
    }

    pub(super) fn leave(&mut self, place: &Arc<Mutex<Place>>) -> Vec<Waker> {
        self.take_out(place);
        let (span, moment) = {
            let place = lock(place);
            (place.span, place.moment)
        };
        self.numbers += 1;
        let hole = Hole {
            number: self.numbers,
            span,
            moment,
            last_moment: moment,
        };
        let at = self.first_hole_from(span.start_ns);
        self.holes.insert(at, hole);
        self.settle(hole)
    }

    pub(super) fn take_out(&mut self, place: &Arc<Mutex<Place>>) {
        self.places.retain(|other| !Arc::ptr_eq(other, place));
    }

    /// What is as if used, all of it, is no hole.
    fn forget_passed(&mut self) {
        let now = Instant::now();
        self.holes.retain(|hole| hole.last_moment > now);
    }

    /// Whether a span that starts there overlaps with a neighbour's.
    fn is_taken(&self, at: usize, span: Span) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.places.get(before));
        let mut neighbours = before.into_iter().chain(self.places.get(at));
        neighbours.any(|place| lock(place).span.overlaps(span))
    }

    /// After a hole has changed.
    fn settle(&mut self, changed: Hole) -> Vec<Waker> {
        self.forget_passed();
        self.move_up(self.holes.iter().rposition(|hole| *hole == changed))
    }

    /// Moves those up who stand right behind the hole that changed, and then behind
    /// those that it comes to touch. Nobody is behind the others, unless the line is mixed.
    fn move_up(&mut self, changed: Option<usize>) -> Vec<Waker> {
        let mut woken = Vec::new();
        if !self.is_mixed {
            let mut next = changed;
            while let Some(at) = next {
                next = self.move_up_behind(at, &mut woken);
            }
            return woken;
        }
        // Who moves up may come to stand behind any other.
        let mut before = Vec::new();
        while before != self.holes {
            self.places.sort_by_key(|place| lock(place).span.start_ns);
            self.holes.sort_by_key(|hole| hole.span.start_ns);
            before.clone_from(&self.holes);
            for at in (0..self.holes.len()).rev() {
                self.move_up_behind(at, &mut woken);
            }
        }
        woken
    }

    /// The hole gets behind those who stand right behind it. The next, if it comes to
    /// touch that one.
    fn move_up_behind(&mut self, mut at: usize, woken: &mut Vec<Waker>) -> Option<usize> {
        let (now, giving) = (Instant::now(), self.giving);
        let stays = |hole: &Hole| hole.moment <= now || giving == Some(*hole);
        let mut hole = self.holes.get(at).copied().filter(|hole| !stays(hole))?;
        let before = at.checked_sub(1).and_then(|before| self.holes.get(before));
        let before = before.filter(|before| before.span.end_ns == hole.span.start_ns);
        if let Some(before) = before.filter(|before| !stays(before)) {
            (hole.span.start_ns, hole.moment) = (before.span.start_ns, before.moment);
            self.holes.remove(at);
            at -= 1;
        }
        let first = self.first_from(hole.span.end_ns);
        for place in self.places.iter().skip(first) {
            let mut place = lock(place);
            if place.span.start_ns != hole.span.end_ns {
                break;
            }
            woken.extend(hole.get_behind(&mut place));
        }
        *self.holes.get_mut(at)? = hole;
        let next = self.holes.get(at + 1)?;
        (next.span.start_ns == hole.span.end_ns).then_some(at + 1)
    }

    /// One at a time: what comes of it decides on the next.
    pub(super) fn next_to_give(&mut self) -> Option<Hole> {
        let hole = *self.holes.last()?;
        let is_last = self.first_from(hole.span.start_ns) == self.places.len();
        if self.giving.is_some() || !is_last || self.tried == Some(hole) {
            return None;
        }
        self.giving = Some(hole);
        Some(hole)
    }

    /// It was to be given back, and is still there or not.
    pub(super) fn tried(&mut self, tried: Hole, is_there: bool) -> Vec<Waker> {
        self.giving = None;
        self.tried = Some(tried);
        if !is_there {
            self.holes.retain(|hole| *hole != tried);
        }
        self.settle(tried)
    }

    /// Nobody knows whether it was given back.
    pub(super) fn give_up(&mut self, giving: Hole) {
        self.giving = None;
        self.holes.retain(|hole| *hole != giving);
    }
}
