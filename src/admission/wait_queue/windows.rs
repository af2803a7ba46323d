//! The line for the next window.
//!
//! From the units ahead of it, a waiter computes in which window its turn to ask comes, and how
//! long after the window opens. So the waiters do not all ask at once. A denial tells all when the
//! next window opens.

use std::{
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use super::{
    Bucket,
    line::Turns,
    registry::{Lines, Place, Queue},
};
use crate::{PolicyDecision, Quota, util::time::later};

static LINES: Lines<Windows> = LazyLock::new(Default::default);

#[derive(Default)]
pub(crate) struct Windows {
    /// When the next window opens.
    opens_at: Option<Instant>,
    /// How many units waiters have asked for since then.
    asked: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Asker {
    quota: Quota,
    cost: u64,
    /// From its last denial: its units are not there before.
    not_before: Instant,
    deadline: Instant,
}

/// A place in the line for a window, until it is dropped.
pub(crate) struct WindowWaiter {
    place: Place<Windows>,
    asker: Asker,
    is_admitted: bool,
}

/// How many units the waiters ask for in a millisecond, after all units of a window came back at
/// once.
const UNITS_PER_MS: u32 = 64;

const MS: Duration = Duration::from_millis(1);

impl Windows {
    fn open(&mut self, at: Instant) {
        (self.opens_at, self.asked) = (Some(at), 0);
    }

    /// Returns when the window opens that has units for a waiter with `ahead` units before it,
    /// and when that waiter asks: a little later for each unit of the window ahead of it.
    fn window(&self, asker: &Asker, ahead: u64) -> (Instant, Instant) {
        let (units, window) = match asker.quota.is_pause() {
            // All may ask when it ends.
            true => (UNITS_PER_MS.into(), MS),
            false => (asker.quota.limit().max(1), asker.quota.period()),
        };
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / units;
        let ahead = self.asked.saturating_add(ahead);
        let opens_at = self.opens_at.unwrap_or(asker.not_before);
        let opens_at = later(opens_at, times(window, ahead / units));
        let step = Duration::from_nanos(nanos).min(MS / UNITS_PER_MS);
        (opens_at, later(opens_at, times(step, ahead % units)))
    }

    /// Leaves the units that a waiter asked for to others.
    fn leave(&mut self, asker: &Asker) {
        self.asked = self.asked.saturating_sub(asker.cost);
    }
}

impl Turns for Windows {
    type Waiter = Asker;

    /// At its deadline, a waiter asks a last time.
    fn turn(&mut self, asker: &Asker, ahead: u64) -> Instant {
        let (_, asks_at) = self.window(asker, ahead);
        asks_at.max(asker.not_before).min(asker.deadline)
    }

    fn take(&mut self, asker: &Asker) {
        self.asked = self.asked.saturating_add(asker.cost);
    }
}

impl WindowWaiter {
    /// Enters the line for the bucket that denied a caller. Returns `None` if `most` callers
    /// wait there, or if the window for this caller opens after the deadline.
    pub(crate) fn enter(
        bucket: &Bucket,
        denied: &PolicyDecision,
        not_before: Instant,
        deadline: Instant,
        most: usize,
    ) -> Option<Self> {
        let asker = Asker {
            quota: denied.quota(),
            cost: denied.cost().max(1),
            not_before,
            deadline,
        };
        let queue = Queue::find_or_add(&LINES, bucket);
        let place = Place::enter(&queue, |line| {
            if line.first().is_none() && line.turns.opens_at < Some(not_before) {
                line.turns.open(not_before);
            }
            let ahead = line.wanted;
            ahead.checked_add(asker.cost)?;
            let (opens_at, _) = line.turns.window(&asker, ahead);
            let is_in_time = queue.len() < most && opens_at <= deadline;
            is_in_time.then_some((0, asker.cost, asker))
        })?;
        Some(Self {
            place,
            asker,
            is_admitted: false,
        })
    }

    pub(crate) fn is_for(&self, bucket: &Bucket) -> bool {
        self.place.queue.is_for(bucket)
    }

    /// Waits until the caller asks.
    pub(crate) fn poll_turn(&self, sleep: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>) -> Poll<()> {
        self.place.poll_turn(sleep, cx)
    }

    /// Records a denial, and enters the same place again.
    pub(crate) fn denied(&mut self, not_before: Instant) {
        self.asker.not_before = not_before;
        let (asker, ticket) = (self.asker, self.place.ticket);
        self.place.queue.change(|line| {
            line.turns.leave(&asker);
            line.add_again(ticket, asker.cost, asker);
            // A smaller request may fit where a larger one was denied.
            if line.first().is_some_and(|first| asker.cost <= first.cost) {
                line.turns.open(not_before);
            }
        });
    }

    /// Leaves the line after an admission. If no units are left, the waiters behind wait for the
    /// next window.
    pub(crate) fn admitted(mut self, decision: &PolicyDecision) {
        self.is_admitted = true;
        if decision.remaining() > 0 || !decision.quota().returns_at_once() {
            return;
        }
        let wait = Duration::from_micros(decision.effective_window_us());
        let opens_at = later(Instant::now(), wait);
        self.place.queue.change(|line| {
            if line.turns.opens_at < Some(opens_at) {
                line.turns.open(opens_at);
            }
        });
    }
}

impl Drop for WindowWaiter {
    /// Leaves the units that it asked for to the waiters behind, if it was not admitted.
    fn drop(&mut self) {
        self.place.queue.change(|line| {
            if line.leave(self.place.ticket).is_none() && !self.is_admitted {
                line.turns.leave(&self.asker);
            }
        });
    }
}

fn times(duration: Duration, count: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(count.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
