//! The callers of this process that wait for the same bucket.
//!
//! A reservation in the middle of a queue cannot be refunded: the waiters behind it
//! were given their times, and the units would be granted twice. So when a waiter
//! leaves, those right behind move up, each by as much, and the last place is
//! refunded. A caller of another process may stand between them, and cannot be
//! told: where the next place does not start where the last one ends, the hole stays
//! as it is, until the caller there turns out to be one of these, whose answer was on
//! its way. So does what is left after its moment has come.

mod line;
mod registry;
mod sequence;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use std::{sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use self::{
    line::{Hole, Line, Span},
    registry::{Registry, Shared},
    sequence::Id,
};
use crate::{Key, policy_name::Name};

/// A store by its number, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

static LINES: Registry<Line> = Registry::new();

/// A place in a line, until it is dropped.
pub(crate) struct Turn {
    line: Arc<Shared<Line>>,
    place: Id,
    /// Where it was when it was entered, and its moment then.
    start_ns: u64,
    moment: Instant,
    has_left: bool,
}

/// What is to be refunded at the end of a line, if the bucket is full again
/// in exactly that microsecond.
pub(crate) struct Free {
    line: Arc<Shared<Line>>,
    hole: Hole,
    pub(crate) level_ns: u64,
    /// The result is known.
    is_told: bool,
}

/// The most callers of this process that wait for one bucket, unless that is set.
pub(crate) const MAX_WAITING: usize = 65_536;

/// Timers tick in milliseconds.
const SHORT: Duration = Duration::from_millis(2);

impl Turn {
    /// Enters a place of this level. Returns also what of the line can be refunded
    /// now that more of it is known.
    pub(crate) fn new(
        bucket: &Bucket,
        moment: Instant,
        full_at_ns: u64,
        level_ns: u64,
    ) -> (Self, Option<Free>) {
        let start_ns = full_at_ns.saturating_sub(level_ns);
        let span = Span {
            start_ns,
            end_ns: full_at_ns,
        };
        let (line, (place, woken, hole)) = LINES.enter(bucket, |line| {
            let (place, woken) = line.enter(span);
            (place, woken, line.next_to_give())
        });
        wake(woken);
        let free = hole.map(|hole| Free::new(&line, hole));
        let turn = Self {
            line,
            place,
            start_ns,
            moment,
            has_left: false,
        };
        (turn, free)
    }

    /// When to look again, as the moment may come sooner: at the latest at the moment
    /// as it is known now. `waker` is woken if the moment comes before that.
    ///
    /// A line in which many leave would wake all behind each of them. So a waiter
    /// looks when three quarters of its wait have passed, and is woken only if it has
    /// moved up by more than the last quarter.
    pub(crate) fn look(&self, waker: &Waker) -> Instant {
        let mut state = self.line.lock();
        let places = &mut state.queue.places;
        let (_, start_ns) = places.locate(self.place);
        let moment = self.moment_from(start_ns);
        let left = moment.saturating_duration_since(Instant::now());
        let early = if left > SHORT {
            left / 4
        } else {
            Duration::ZERO
        };
        let early_ns = u64::try_from(early.as_nanos()).unwrap_or(u64::MAX);
        let wake_below = start_ns.saturating_sub(early_ns);
        places.wake_below(self.place, wake_below, waker);
        moment - early
    }

    /// Whether its moment has come.
    pub(crate) fn has_come(&self) -> bool {
        self.moment(&self.line.lock().queue) <= Instant::now()
    }

    fn moment(&self, line: &Line) -> Instant {
        self.moment_from(line.places.locate(self.place).1)
    }

    fn moment_from(&self, start_ns: u64) -> Instant {
        let sooner = Duration::from_nanos(self.start_ns.saturating_sub(start_ns));
        self.moment.checked_sub(sooner).unwrap_or(self.moment)
    }

    /// Leaves before the moment came, and those right behind move up.
    pub(crate) fn leave(mut self) -> Option<Free> {
        self.has_left = true;
        let (woken, hole) = LINES.change(&self.line, |line| {
            let woken = line.leave(self.place, |start_ns| self.moment_from(start_ns));
            (woken, line.next_to_give())
        });
        wake(woken);
        hole.map(|hole| Free::new(&self.line, hole))
    }
}

impl Free {
    fn new(line: &Arc<Shared<Line>>, hole: Hole) -> Self {
        Self {
            line: Arc::clone(line),
            hole,
            level_ns: hole.span.length_ns(),
            is_told: false,
        }
    }

    /// The mark under which it may be refunded.
    pub(crate) const fn since(&self) -> u64 {
        self.hole.span.end_ns / 1_000
    }

    /// Records how much of it was refunded; `None` if that is unknown. Returns what
    /// else is to be refunded now.
    pub(crate) fn given(mut self, level_ns: Option<u64>) -> Option<Self> {
        self.is_told = true;
        // What may have come back may be another's by now, also in another process.
        // (Here they have entered the line already.)
        let (woken, hole) = LINES.change(&self.line, |line| {
            let woken = line.tried(self.hole, level_ns == Some(0));
            (woken, line.next_to_give())
        });
        wake(woken);
        hole.map(|hole| Self::new(&self.line, hole))
    }
}

impl Drop for Free {
    /// Before the result was known: the runtime for the refund is gone.
    fn drop(&mut self) {
        if !self.is_told {
            LINES.change(&self.line, |line| line.give_up(self.hole));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.has_left {
            LINES.change(&self.line, |line| line.take_out(self.place));
        }
    }
}

/// Whether as many as `most` wait for a bucket that reserves places.
pub(crate) fn is_full(most: usize, stores: [usize; 2], bucket: impl Fn(usize) -> Bucket) -> bool {
    registry::may_be_full(most)
        && stores
            .into_iter()
            .any(|store| LINES.len(&bucket(store)) >= most)
}

fn wake(woken: Vec<Waker>) {
    for waker in woken {
        waker.wake();
    }
}
