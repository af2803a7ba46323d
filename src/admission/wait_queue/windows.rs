//! The line for the next window.
//!
//! From the units ahead of it, a waiter computes in which window its turn to ask comes, and how
//! long after the window opens. So the waiters do not all ask at once. A denial tells all when the
//! next window opens.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use super::{
    Arrival, Bucket,
    line::{Line, Turns},
    registry::{Lines, Place, Queue},
};
use crate::{PolicyDecision, Quota, charge::Charge, util::time::later};

static LINES: Lines<Windows> = Lines::new();

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
        let (units, window) = asker.window();
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / units;
        let ahead = asker.start(self.asked.saturating_add(ahead));
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

    /// At its deadline, a waiter stops waiting.
    fn turn(&mut self, asker: &Asker, ahead: Option<(u64, Instant)>) -> Instant {
        let (units, first_turn) = ahead.unwrap_or((0, asker.not_before));
        let (_, asks_at) = self.window(asker, units);
        let turn = asks_at.max(asker.not_before).max(first_turn);
        turn.min(asker.deadline)
    }

    fn take(&mut self, asker: &Asker) {
        self.asked = asker.start(self.asked).saturating_add(asker.cost);
    }
}

impl Asker {
    /// Returns how many units come back together, and how often.
    fn window(&self) -> (u64, Duration) {
        match self.quota.is_pause() {
            // All may ask when it ends.
            true => (UNITS_PER_MS.into(), MS),
            false => (self.quota.limit().max(1), self.quota.period()),
        }
    }

    /// Returns the first of its own units, if so many are before it: they are of one window.
    fn start(&self, ahead: u64) -> u64 {
        let (units, _) = self.window();
        let used = ahead % units;
        let is_too_few = used > 0 && self.cost > units - used;
        ahead.saturating_add(if is_too_few { units - used } else { 0 })
    }
}

/// Returns whether any caller waits for a window.
pub(crate) fn have_waiters() -> bool {
    LINES.have_waiters(1)
}

/// Returns whether a caller must wait behind others that came before it: in line, or, for a new
/// caller, still asking.
pub(crate) fn has_earlier(bucket: impl FnOnce() -> Bucket, number: u64, is_new: bool) -> bool {
    if !have_waiters() {
        return false;
    }
    let queue = LINES.find(&bucket());
    queue.is_some_and(|queue| is_new || queue.change(|line| line.has_earlier(number)))
}

/// Lets the callers of this process that wait for a bucket ask, because it was reset.
pub(crate) fn reset(bucket: impl FnOnce() -> Bucket) {
    if !have_waiters() {
        return;
    }
    if let Some(queue) = LINES.find(&bucket()) {
        let now = Instant::now();
        queue.change(|line| {
            line.turns.open(now);
            line.each(|asker| asker.not_before = now);
        });
    }
}

impl WindowWaiter {
    /// Enters the line for the bucket that denied a caller until `not_before`.
    pub(crate) fn denied_by(
        bucket: &Bucket,
        denied: &PolicyDecision,
        not_before: Instant,
        arrival: Arrival,
    ) -> Result<Self, Instant> {
        let asker = Asker {
            quota: denied.quota(),
            cost: denied.cost().max(1),
            not_before,
            deadline: arrival.deadline,
        };
        Self::enter(bucket, asker, arrival, true)
    }

    /// Enters the line for the bucket of a charge, without having asked.
    pub(crate) fn behind_others(
        bucket: &Bucket,
        charge: &Charge<'_>,
        arrival: Arrival,
    ) -> Result<Self, Instant> {
        let asker = Asker {
            quota: charge.quota(),
            cost: charge.cost().max(1),
            not_before: Instant::now(),
            deadline: arrival.deadline,
        };
        Self::enter(bucket, asker, arrival, false)
    }

    /// Returns the opening of the window that has units for this caller if too many callers wait, or
    /// if it comes after the deadline.
    fn enter(
        bucket: &Bucket,
        asker: Asker,
        arrival: Arrival,
        is_denied: bool,
    ) -> Result<Self, Instant> {
        let queue = Queue::find_or_add(&LINES, bucket);
        let mut too_late = asker.not_before;
        let place = Place::enter(&queue, |line| {
            let is_first = !line.has_earlier(arrival.number);
            if is_denied && is_first && line.turns.opens_at < Some(asker.not_before) {
                line.turns.open(asker.not_before);
            }
            let ahead = line.wanted;
            ahead.checked_add(asker.cost)?;
            let (opens_at, _) = line.turns.window(&asker, ahead);
            if queue.len() >= arrival.most || opens_at > asker.deadline {
                too_late = opens_at;
                return None;
            }
            line.add_at(arrival.number, asker.cost, asker);
            Some(arrival.number)
        });
        let place = place.ok_or(too_late)?;
        Ok(Self {
            place,
            asker,
            is_admitted: false,
        })
    }

    pub(crate) fn is_for(&self, bucket: &Bucket) -> bool {
        self.place.queue.is_for(bucket)
    }

    /// Waits until the caller asks.
    pub(crate) fn poll_turn(
        &mut self,
        sleep: &mut Pin<Box<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.place.poll_turn(sleep, cx)
    }

    /// Records a denial, and enters the same place again.
    pub(crate) fn denied(&mut self, not_before: Instant) {
        self.asker.not_before = not_before;
        let asker = self.asker;
        self.place.queue.change(|line| {
            self.enter_again(line);
            // A smaller request may fit where a larger one was denied.
            if line.first().is_some_and(|first| asker.cost <= first.cost) {
                line.turns.open(not_before);
            }
        });
    }

    /// Enters the same place again when its turn has come, without having asked.
    pub(crate) fn stay(&mut self) {
        self.asker.not_before = Instant::now();
        self.place.queue.change(|line| self.enter_again(line));
    }

    fn enter_again(&self, line: &mut Line<Windows>) {
        line.turns.leave(&self.asker);
        line.add_at(self.place.ticket, self.asker.cost, self.asker);
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
    /// Leaves the units that it asked for to the waiters behind, if it was not admitted. The next one
    /// asks at once if it waits for fewer.
    fn drop(&mut self) {
        let Self { place, asker, .. } = &*self;
        place.queue.change(|line| {
            let has_asked = line.leave(place.ticket).is_none();
            if self.is_admitted {
                return;
            }
            if has_asked {
                line.turns.leave(asker);
            }
            let is_smaller = line.first().is_some_and(|next| next.cost < asker.cost);
            if is_smaller && !line.has_earlier(place.ticket) {
                line.turns.open(Instant::now());
            }
        });
    }
}

fn times(duration: Duration, count: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(count.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
