//! Queues of the callers of this process that wait for the next window.
//!
//! From the units ahead of it, each waiter computes in which window its turn comes, and how
//! long after the window opens it asks. So the waiters do not all ask at once. A denial of
//! any of them tells all when the next window opens.
//!
//! Each waiter has a timer of its own, so a future that is not polled delays no other.

use std::{sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use super::{
    Bucket, SHORT_WAIT,
    registry::{Queue, Registry, Shared},
    sequence::{Id, NONE, Sequences},
    wake,
};
use crate::{PolicyDecision, Quota, util::time::later};

static WINDOW_QUEUES: Registry<WindowQueue> = Registry::new();

/// The queue for one bucket.
#[derive(Default)]
struct WindowQueue {
    /// The waiters' places. The length of a place is the units that its waiter asks for.
    places: Sequences,
    /// The tree of all places, in the order in which the waiters came. It starts behind all
    /// units that were granted to earlier waiters.
    all: Id,
    /// When the next window opens, and at which place it starts.
    opens_at: Option<Instant>,
    base: u64,
}

/// A place in the queue for a window, until it is dropped.
pub(crate) struct WindowWaiter {
    windows: Arc<Shared<WindowQueue>>,
    id: Id,
    bucket: Bucket,
    pace: Pace,
    /// The last denial of this waiter: its units are not there before.
    not_before: Instant,
    deadline: Instant,
    is_admitted: bool,
}

/// The pace at which units come back.
#[derive(Clone, Copy)]
struct Pace {
    /// How many units each window grants.
    units: u64,
    window: Duration,
    /// How much later a waiter asks for each unit ahead of it.
    step: Duration,
}

/// How many units the waiters ask for in a millisecond, of those that came back at once.
const UNITS_PER_MS: u32 = 64;

const MS: Duration = Duration::from_millis(1);

impl Queue for WindowQueue {
    fn is_needed(&mut self) -> bool {
        self.all != NONE
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl WindowQueue {
    /// Returns the units between the start of the window and a place.
    fn ahead(&self, start: u64) -> u64 {
        start.saturating_sub(self.base)
    }

    /// Records when the next window opens, and lets it start at the first place.
    fn open(&mut self, at: Instant) {
        self.opens_at = Some(at);
        self.base = self.places.start(self.all);
    }
}

impl Pace {
    fn new(quota: Quota) -> Self {
        let (units, window) = (quota.limit().max(1), quota.period());
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / units;
        Self {
            units,
            window,
            step: (MS / UNITS_PER_MS).min(Duration::from_nanos(nanos)),
        }
    }

    /// Returns when the window opens that has units for a waiter with `ahead` units before
    /// it, and when that waiter asks.
    fn turn(&self, opens_at: Instant, ahead: u64) -> (Instant, Instant) {
        let window = times(self.window, ahead / self.units);
        let opens_at = later(opens_at, window);
        (
            opens_at,
            later(opens_at, times(self.step, ahead % self.units)),
        )
    }

    /// Returns the units ahead of the first waiter that asks at this instant or later.
    fn ahead_at(&self, opens_at: Instant, at: Instant) -> u64 {
        let after = at.saturating_duration_since(opens_at).as_nanos();
        let window = self.window.as_nanos().max(1);
        let within = (after % window).div_ceil(self.step.as_nanos().max(1));
        let units = u128::from(self.units);
        u64::try_from((after / window) * units + within.min(units)).unwrap_or(u64::MAX)
    }
}

impl WindowWaiter {
    /// Enters the queue for the bucket that denied a caller. Returns `None` if `most` callers
    /// wait there, or if the window for this caller opens after the deadline.
    pub(crate) fn enter(
        bucket: Bucket,
        denied: &PolicyDecision,
        not_before: Instant,
        deadline: Instant,
        most: usize,
    ) -> Option<Self> {
        let pace = Pace::new(denied.quota());
        let (windows, id) = WINDOW_QUEUES.enter(&bucket, |windows| {
            let opens_at = *windows.opens_at.get_or_insert(not_before);
            let (start, sum) = (
                windows.places.start(windows.all),
                windows.places.sum(windows.all),
            );
            let (end, cost) = (start.checked_add(sum)?, denied.cost().max(1));
            end.checked_add(cost)?;
            let ahead = windows.ahead(end);
            let (opens_at, _) = pace.turn(opens_at.max(Instant::now()), ahead);
            if windows.len() >= most || opens_at.max(not_before) > deadline {
                return None;
            }
            let id = windows.places.add(0, cost);
            windows.all = windows.places.join(windows.all, id);
            Some(id)
        });
        Some(Self {
            windows,
            id: id?,
            bucket,
            pace,
            not_before,
            deadline,
            is_admitted: false,
        })
    }

    pub(crate) fn is_for(&self, bucket: &Bucket) -> bool {
        self.bucket == *bucket
    }

    /// Records a denial. Returns whether the turn can still come before the deadline.
    pub(crate) fn denied(&mut self, not_before: Instant) -> bool {
        self.not_before = not_before;
        let (pace, id, deadline) = (self.pace, self.id, self.deadline);
        WINDOW_QUEUES.change(&self.windows, |windows| {
            let first = windows.places.first(windows.all);
            // A denial of a larger request says nothing about a smaller one.
            if windows.places.length(id) <= windows.places.length(first) {
                windows.open(not_before);
            }
            let opens_at = windows.opens_at.unwrap_or(not_before);
            let ahead = windows.ahead(windows.places.locate(id).1);
            pace.turn(opens_at, ahead).0.max(not_before) <= deadline
        })
    }

    /// Leaves the queue after an admission. If no units are left, the waiters behind wait
    /// for the next window.
    pub(crate) fn admitted(mut self, decision: &PolicyDecision) {
        self.is_admitted = true;
        let windows = Arc::clone(&self.windows);
        drop(self);
        let is_over = decision.remaining() == 0 && decision.quota().returns_at_once();
        let wait = Duration::from_micros(decision.effective_window_us());
        let opens_at = is_over.then(|| later(Instant::now(), wait));
        WINDOW_QUEUES.change(&windows, |windows| {
            if opens_at > windows.opens_at {
                opens_at.into_iter().for_each(|at| windows.open(at));
            }
        });
    }

    /// Returns when to check again, or `None` if it is time to ask the store. `waker` is
    /// woken if that time comes sooner.
    ///
    /// A waiter whose window would open after its deadline asks a last time now.
    pub(crate) fn next_check(&self, waker: &Waker) -> Option<Instant> {
        let now = Instant::now();
        let state = &mut self.windows.lock().queue;
        let (_, start) = state.places.locate(self.id);
        let ahead = state.ahead(start);
        let opens_at = state.opens_at.unwrap_or(now);
        let (window, ask_at) = self.pace.turn(opens_at, ahead);
        let ask_at = ask_at.max(self.not_before).min(self.deadline);
        if ask_at <= now || window > self.deadline {
            return None;
        }
        let left = ask_at - now;
        // As for a reservation: so that not all are woken whenever one leaves.
        let check_at = ask_at
            - if left > SHORT_WAIT {
                left / 4
            } else {
                Duration::ZERO
            };
        let wake_below = self.pace.ahead_at(opens_at, check_at).min(ahead);
        let wake_below = state.base.saturating_add(wake_below);
        state.places.wake_below(self.id, wake_below, waker);
        Some(check_at)
    }
}

impl Drop for WindowWaiter {
    fn drop(&mut self) {
        let mut woken = Vec::new();
        WINDOW_QUEUES.change(&self.windows, |windows| {
            let places = &mut windows.places;
            let granted = u64::from(self.is_admitted) * places.length(self.id);
            let start = places.start(windows.all).saturating_add(granted);
            windows.all = places.close_up(self.id);
            places.set_start(windows.all, start);
            windows.places.wake(windows.all, &mut woken);
        });
        wake(woken);
    }
}

fn times(duration: Duration, count: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(count.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
