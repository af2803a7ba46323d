//! Queues of the callers of this process that wait for the same bucket.
//!
//! A reservation is units that a waiting caller took in advance, and the instant from which they are
//! its own.
//!
//! A reservation in the middle of a queue cannot be refunded: the waiters behind it
//! already have their times, and the units would be granted twice. So when a waiter
//! leaves, the waiters right behind it move up, each by as much, and the last place is
//! refunded. A waiter of another process may be in between and cannot move: if the next
//! place does not start where the last one ends, the gap stays. It closes if the waiter
//! there turns out to be one of this process whose answer was late. A gap whose moment has
//! come counts as used.

mod registry;
mod reservations;
mod sequence;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use std::{sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use self::{
    registry::{Registry, Shared},
    reservations::{Gap, ReservationQueue, Span},
    sequence::Id,
};
use crate::{Key, policy_name::Name};

/// A store by its number, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

static RESERVATIONS: Registry<ReservationQueue> = Registry::new();

/// A place in the queue for a bucket that reserves places, until it is dropped.
pub(crate) struct Reservation {
    queue: Arc<Shared<ReservationQueue>>,
    place: Id,
    /// Where the place started when the waiter entered it, and its moment then.
    start_ns: u64,
    moment: Instant,
    has_left: bool,
}

/// A refund of the last place of a queue. It is valid if the bucket is full again in exactly
/// the microsecond in which that place ends.
pub(crate) struct TailRefund {
    queue: Arc<Shared<ReservationQueue>>,
    gap: Gap,
    pub(crate) level_ns: u64,
    /// Whether the result is known.
    is_known: bool,
}

/// The most callers of this process that wait for one bucket, by default.
pub(crate) const MAX_WAITING: usize = 65_536;

/// Timers tick in milliseconds.
const SHORT_WAIT: Duration = Duration::from_millis(2);

impl Reservation {
    /// Enters a place of this level. Also returns the tail of the queue that can be
    /// refunded, now that one more place is known.
    pub(crate) fn new(
        bucket: &Bucket,
        moment: Instant,
        full_at_ns: u64,
        level_ns: u64,
    ) -> (Self, Option<TailRefund>) {
        let start_ns = full_at_ns.saturating_sub(level_ns);
        let span = Span {
            start_ns,
            end_ns: full_at_ns,
        };
        let (queue, (place, woken, gap)) = RESERVATIONS.enter(bucket, |queue| {
            let (place, woken) = queue.enter(span);
            (place, woken, queue.next_refund())
        });
        wake(woken);
        let refund = gap.map(|gap| TailRefund::new(&queue, gap));
        let reservation = Self {
            queue,
            place,
            start_ns,
            moment,
            has_left: false,
        };
        (reservation, refund)
    }

    /// Returns when to check again, at the latest the moment as it is known now. `waker` is
    /// woken if the moment moves to before that.
    ///
    /// Waking every waiter behind each one that leaves would cost too much. So a waiter
    /// checks when three quarters of its wait have passed, and is woken only if it has moved
    /// up by more than the last quarter.
    pub(crate) fn next_check(&self, waker: &Waker) -> Instant {
        let mut state = self.queue.lock();
        let places = &mut state.queue.places;
        let (_, start_ns) = places.locate(self.place);
        let moment = self.moment_at(start_ns);
        let left = moment.saturating_duration_since(Instant::now());
        let early = if left > SHORT_WAIT {
            left / 4
        } else {
            Duration::ZERO
        };
        let early_ns = u64::try_from(early.as_nanos()).unwrap_or(u64::MAX);
        let wake_below = start_ns.saturating_sub(early_ns);
        places.wake_below(self.place, wake_below, waker);
        moment - early
    }

    /// Returns whether its moment has come.
    pub(crate) fn has_come(&self) -> bool {
        self.moment(&self.queue.lock().queue) <= Instant::now()
    }

    fn moment(&self, queue: &ReservationQueue) -> Instant {
        self.moment_at(queue.places.locate(self.place).1)
    }

    fn moment_at(&self, start_ns: u64) -> Instant {
        let sooner = Duration::from_nanos(self.start_ns.saturating_sub(start_ns));
        self.moment.checked_sub(sooner).unwrap_or(self.moment)
    }

    /// Leaves before the moment has come. The waiters right behind move up.
    pub(crate) fn leave(mut self) -> Option<TailRefund> {
        self.has_left = true;
        let (woken, gap) = RESERVATIONS.change(&self.queue, |queue| {
            let woken = queue.leave(self.place, |start_ns| self.moment_at(start_ns));
            (woken, queue.next_refund())
        });
        wake(woken);
        gap.map(|gap| TailRefund::new(&self.queue, gap))
    }
}

impl TailRefund {
    fn new(queue: &Arc<Shared<ReservationQueue>>, gap: Gap) -> Self {
        Self {
            queue: Arc::clone(queue),
            gap,
            level_ns: gap.span.length_ns(),
            is_known: false,
        }
    }

    /// Returns the mark of the bucket at which the units were taken.
    pub(crate) const fn taken_at(&self) -> u64 {
        self.gap.span.end_ns / 1_000
    }

    /// Records how much was refunded; `None` if that is unknown. Returns the next tail that
    /// can be refunded.
    pub(crate) fn refunded(mut self, level_ns: Option<u64>) -> Option<Self> {
        self.is_known = true;
        // Another caller may have taken the refunded units. A caller of this process has
        // entered the queue by now; one of another process is unknown here.
        let (woken, gap) = RESERVATIONS.change(&self.queue, |queue| {
            let woken = queue.tried(self.gap, level_ns == Some(0));
            (woken, queue.next_refund())
        });
        wake(woken);
        gap.map(|gap| Self::new(&self.queue, gap))
    }
}

impl Drop for TailRefund {
    /// Gives up the gap if the runtime of the refund ended before the result was known.
    fn drop(&mut self) {
        if !self.is_known {
            RESERVATIONS.change(&self.queue, |queue| queue.give_up(self.gap));
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.has_left {
            RESERVATIONS.change(&self.queue, |queue| queue.take_out(self.place));
        }
    }
}

/// Returns whether `max_waiting` callers wait for a bucket that reserves places.
pub(crate) fn is_full(
    max_waiting: usize,
    stores: [usize; 2],
    bucket: impl Fn(usize) -> Bucket,
) -> bool {
    registry::may_be_full(max_waiting)
        && stores
            .into_iter()
            .any(|store| RESERVATIONS.len(&bucket(store)) >= max_waiting)
}

fn wake(woken: Vec<Waker>) {
    for waker in woken {
        waker.wake();
    }
}
