//! Who waits in this process for a turn in the same bucket.
//!
//! A place in the middle of a queue cannot be given back: who stands behind it
//! was told their moment, and the place would be had twice. So when one leaves, those
//! right behind move up, each by as much, and the last place is given back. Between
//! them somebody of another process may stand, whom nobody here can tell: where the
//! next place does not start where the last one ends, the hole stays as it is,
//! until who stands there turns out to be one of these, whose answer was on its
//! way. So does what is left after its turn has come.

mod line;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use tokio::time::Instant;

use self::line::{Hole, Line, Place, Span};
use crate::{Key, policy::Name};

/// A store by its address, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Lines {
    by_bucket: HashMap<Bucket, Line>,
    /// How many there may be before those of no use are looked for.
    many: usize,
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
        let woken = line.enter(&place);
        let free = Free::next(line, &bucket);
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
        let woken = line.leave(&self.place);
        let free = Free::next(line, &self.bucket);
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

impl Free {
    fn next(line: &mut Line, bucket: &Bucket) -> Option<Self> {
        let hole = line.next_to_give()?;
        Some(Self {
            bucket: bucket.clone(),
            hole,
            level_ns: hole.span.length_ns(),
            is_told: false,
        })
    }

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
        // What may have come back may be somebody's by now, also in another process.
        // (Here they were told of it already.)
        let woken = line.tried(self.hole, level_ns == Some(0));
        let next = Self::next(line, &self.bucket);
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
            line.give_up(self.hole);
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
