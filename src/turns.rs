//! Who waits in this process for a turn in the same bucket.
//!
//! A place in the middle of a queue cannot be given back: who stands behind it
//! was told their moment, and the place would be had twice. So when one leaves, those
//! right behind move up, each by as much, and the last place is given back. Between
//! them somebody of another process may stand, whom nobody here can tell: where the
//! next place does not start where the last one ends, the hole stays as it is,
//! until who stands there turns out to be one of these, whose answer was on its
//! way. So does what is left after its turn has come.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use crate::{Key, admission::later, policy::Name};

/// A store by its address, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Lines {
    by_bucket: HashMap<Bucket, Line>,
    /// How many there may be before those of no use are looked for.
    many: usize,
}

#[derive(Default)]
struct Line {
    /// In the order of their turns.
    places: Vec<Arc<Mutex<Place>>>,
    /// Left, and not given back yet. In the same order, and none touches the next.
    holes: Vec<Hole>,
    /// How many holes there were.
    numbers: u64,
    /// What is on its way back, one at a time. Until that is known, it is not known
    /// either who stands right behind it.
    giving: Option<Hole>,
    /// What could not be given back.
    tried: Option<Hole>,
}

/// The nanoseconds of a bucket's refill that one waits for, up to the one at which
/// the bucket is full again, by this place and all before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    start_ns: u64,
    end_ns: u64,
}

struct Place {
    moment: Instant,
    span: Span,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hole {
    number: u64,
    span: Span,
    /// From then on its first part is as if used, and nobody moves up to it.
    moment: Instant,
    /// From then on all of it is.
    last_moment: Instant,
}

/// A place in a line, until it is dropped.
pub(crate) struct Turn {
    bucket: Bucket,
    place: Arc<Mutex<Place>>,
}

/// What is to be given back at the end of a line, if the bucket is full again
/// in exactly that microsecond.
pub(crate) struct Free {
    bucket: Bucket,
    hole: Hole,
    pub(crate) level_ns: u64,
    /// What came of it is known.
    is_told: bool,
}

impl Span {
    const fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
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

impl Turn {
    /// A place of this level. With it, what of the line can be given back now that
    /// more of it is known.
    pub(crate) fn new(
        bucket: Bucket,
        moment: Instant,
        full_at_ns: u64,
        level_ns: u64,
    ) -> (Self, Option<Free>) {
        let span = Span {
            start_ns: full_at_ns.saturating_sub(level_ns),
            end_ns: full_at_ns,
        };
        let place = Arc::new(Mutex::new(Place {
            moment,
            span,
            waker: None,
        }));
        let mut lines = lock(&LINES);
        let line = lines.line(&bucket);
        // What was taken again had been given back, all of it.
        let is_there =
            |hole: &Hole| span.end_ns <= hole.span.start_ns || hole.span.end_ns <= span.start_ns;
        line.holes.retain(is_there);
        line.forget_passed();
        // Answers may come in another order than decisions were made in.
        let at = line.first_from(span.start_ns);
        line.places.insert(at, Arc::clone(&place));
        let woken = line.move_up_to(line.first_hole_from(span.start_ns).checked_sub(1));
        let free = line.next_free(&bucket);
        drop(lines);
        wake(woken);
        (Self { bucket, place }, free)
    }

    /// When the turn comes, as far as is known now; `waker` is woken when it
    /// comes sooner.
    pub(crate) fn moment(&self, waker: &Waker) -> Instant {
        let mut place = lock(&self.place);
        place.waker = Some(waker.clone());
        place.moment
    }

    /// Whether it has come.
    pub(crate) fn has_come(&self) -> bool {
        lock(&self.place).moment <= Instant::now()
    }

    /// Leaves before the turn came, and those right behind move up.
    pub(crate) fn leave(self) -> Option<Free> {
        let mut lines = lock(&LINES);
        let line = lines.by_bucket.get_mut(&self.bucket)?;
        line.take_out(&self.place);
        let (span, moment) = {
            let place = lock(&self.place);
            (place.span, place.moment)
        };
        line.numbers += 1;
        let hole = Hole {
            number: line.numbers,
            span,
            moment,
            last_moment: moment,
        };
        line.forget_passed();
        let at = line.first_hole_from(span.start_ns);
        line.holes.insert(at, hole);
        let woken = line.move_up_to(Some(at));
        let free = line.next_free(&self.bucket);
        drop(lines);
        wake(woken);
        free
    }
}

impl Lines {
    fn line(&mut self, bucket: &Bucket) -> &mut Line {
        if self.by_bucket.len() > self.many {
            self.by_bucket.retain(|_, line| line.is_of_use());
            self.many = 2 * self.by_bucket.len().max(512);
        }
        self.by_bucket.entry(bucket.clone()).or_default()
    }

    /// Forgets a line of no use.
    fn tidy(&mut self, bucket: &Bucket) {
        if self
            .by_bucket
            .get(bucket)
            .is_some_and(|line| !line.is_of_use())
        {
            self.by_bucket.remove(bucket);
        }
    }
}

impl Line {
    /// Somebody stands in it, or what was left may still be given back.
    fn is_of_use(&self) -> bool {
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

    fn take_out(&mut self, place: &Arc<Mutex<Place>>) {
        self.places.retain(|other| !Arc::ptr_eq(other, place));
    }

    /// What is as if used, all of it, is no hole.
    fn forget_passed(&mut self) {
        let now = Instant::now();
        self.holes.retain(|hole| hole.last_moment > now);
    }

    /// Moves those up who stand right behind this hole, which gets behind them and
    /// may come to touch the next. Others did not change, and nobody is behind them.
    fn move_up_to(&mut self, hole: Option<usize>) -> Vec<Waker> {
        let (now, giving) = (Instant::now(), self.giving);
        let stays = |hole: &Hole| hole.moment <= now || giving == Some(*hole);
        let mut woken = Vec::new();
        let Some(mut at) = hole else { return woken };
        while let Some(mut hole) = self.holes.get(at).copied().filter(|hole| !stays(hole)) {
            let before = at.checked_sub(1).and_then(|before| self.holes.get(before));
            let touches = |before: &&Hole| before.span.end_ns == hole.span.start_ns;
            if let Some(before) = before.copied().as_ref().filter(touches) {
                if !stays(before) {
                    (hole.span.start_ns, hole.moment) = (before.span.start_ns, before.moment);
                    self.holes.remove(at);
                    at -= 1;
                }
            }
            let first = self.first_from(hole.span.end_ns);
            for place in self.places.iter().skip(first) {
                let mut place = lock(place);
                if place.span.start_ns != hole.span.end_ns {
                    break;
                }
                woken.extend(hole.get_behind(&mut place));
            }
            if let Some(known) = self.holes.get_mut(at) {
                *known = hole;
            }
            at += 1;
            let next = self.holes.get(at);
            if next.is_none_or(|next| next.span.start_ns != hole.span.end_ns) {
                break;
            }
        }
        woken
    }

    /// One at a time: what comes of it decides on the next.
    fn next_free(&mut self, bucket: &Bucket) -> Option<Free> {
        let hole = *self.holes.last()?;
        let is_last = self.first_from(hole.span.start_ns) == self.places.len();
        if self.giving.is_some() || !is_last || self.tried == Some(hole) {
            return None;
        }
        self.giving = Some(hole);
        Some(Free {
            bucket: bucket.clone(),
            hole,
            level_ns: hole.span.length_ns(),
            is_told: false,
        })
    }
}

impl Free {
    /// The mark under which it may be given back.
    pub(crate) const fn since(&self) -> u64 {
        self.hole.span.end_ns / 1_000
    }

    /// So much of it was given back; `None` if nobody knows. What else is there to
    /// give back now?
    pub(crate) fn given(mut self, level_ns: Option<u64>) -> Option<Self> {
        self.is_told = true;
        let mut lines = lock(&LINES);
        let line = lines.by_bucket.get_mut(&self.bucket)?;
        line.giving = None;
        line.tried = Some(self.hole);
        // What may have come back may be somebody's by now, also in another process.
        // (Here they were told of it already.)
        if level_ns != Some(0) {
            line.holes.retain(|hole| *hole != self.hole);
        }
        line.forget_passed();
        let still_there = line.holes.iter().rposition(|hole| *hole == self.hole);
        let woken = line.move_up_to(still_there);
        let next = line.next_free(&self.bucket);
        lines.tidy(&self.bucket);
        drop(lines);
        wake(woken);
        next
    }
}

impl Drop for Free {
    /// Before it was told: the runtime that it was to be given back in is gone.
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let mut lines = lock(&LINES);
        if let Some(line) = lines.by_bucket.get_mut(&self.bucket) {
            line.giving = None;
            line.holes.retain(|hole| *hole != self.hole);
        }
        lines.tidy(&self.bucket);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = lock(&LINES);
        if let Some(line) = lines.by_bucket.get_mut(&self.bucket) {
            line.take_out(&self.place);
        }
        lines.tidy(&self.bucket);
    }
}

fn wake(woken: Vec<Waker>) {
    for waker in woken {
        waker.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
