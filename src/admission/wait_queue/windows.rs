//! The callers of this process that wait for a window to give units back.
//!
//! They stand in a queue. Each knows the units ahead of it, and so the window in which
//! its turn comes and how long after that window opens: not all ask at once. A
//! denial tells when the next window opens, for all.
//!
//! A caller that nobody polls holds up no other: each has a timer of its own.

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
    /// As long as the units that they ask for.
    places: Sequences,
    /// All of them, in the order in which they came. They start behind all units
    /// that were granted to others of them.
    all: Id,
    /// When a window opens, and where it starts.
    opens_at: Option<Instant>,
    base: u64,
}

/// A place in the queue for a window, until it is dropped.
pub(crate) struct WindowWaiter {
    windows: Arc<Shared<WindowQueue>>,
    id: Id,
    bucket: Bucket,
    pace: Pace,
    /// Its own units are not there before.
    not_before: Instant,
    until: Instant,
    is_admitted: bool,
}

/// At which pace units come back.
#[derive(Clone, Copy)]
struct Pace {
    /// In each window.
    units: u64,
    window: Duration,
    /// How much later a caller asks for each unit ahead of it.
    step: Duration,
}

/// So many are asked for in a millisecond, of those that came back at once.
const UNITS_PER_MS: u32 = 64;

const MS: Duration = Duration::from_millis(1);

impl Queue for WindowQueue {
    fn is_of_use(&mut self) -> bool {
        self.all != NONE
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl WindowQueue {
    /// The units ahead of a place from where the window starts.
    fn ahead(&self, start: u64) -> u64 {
        start.saturating_sub(self.base)
    }

    /// Lets the next window start at the first place.
    fn open(&mut self, at: Instant) {
        self.opens_at = Some(at);
        self.base = self.places.start(self.all);
    }
}

impl Pace {
    fn of(quota: Quota) -> Self {
        let (units, window) = (quota.limit().max(1), quota.period());
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / units;
        Self {
            units,
            window,
            step: (MS / UNITS_PER_MS).min(Duration::from_nanos(nanos)),
        }
    }

    /// When the window opens that has units for a caller with so many ahead of it,
    /// and when that one asks.
    fn turn(&self, opens_at: Instant, ahead: u64) -> (Instant, Instant) {
        let window = times(self.window, ahead / self.units);
        let opens_at = later(opens_at, window);
        (
            opens_at,
            later(opens_at, times(self.step, ahead % self.units)),
        )
    }

    /// The units ahead of the first caller that asks at this instant, or later.
    fn ahead_at(&self, opens_at: Instant, at: Instant) -> u64 {
        let after = at.saturating_duration_since(opens_at).as_nanos();
        let window = self.window.as_nanos().max(1);
        let within = (after % window).div_ceil(self.step.as_nanos().max(1));
        let units = u128::from(self.units);
        u64::try_from((after / window) * units + within.min(units)).unwrap_or(u64::MAX)
    }
}

impl WindowWaiter {
    /// Enters the queue for the bucket that denied a caller. `None`: as many as
    /// `most` wait there, or those ahead need more windows than end until then.
    pub(crate) fn enter(
        bucket: Bucket,
        denied: &PolicyDecision,
        not_before: Instant,
        until: Instant,
        most: usize,
    ) -> Option<Self> {
        let pace = Pace::of(denied.quota());
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
            if windows.len() >= most || opens_at.max(not_before) > until {
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
            until,
            is_admitted: false,
        })
    }

    pub(crate) fn is_for(&self, bucket: &Bucket) -> bool {
        self.bucket == *bucket
    }

    /// Records a denial. Returns whether it is worth to wait on.
    pub(crate) fn denied(&mut self, not_before: Instant) -> bool {
        self.not_before = not_before;
        let (pace, id, until) = (self.pace, self.id, self.until);
        WINDOW_QUEUES.change(&self.windows, |windows| {
            let first = windows.places.first(windows.all);
            // It says nothing of a caller that asks for less.
            if windows.places.length(id) <= windows.places.length(first) {
                windows.open(not_before);
            }
            let opens_at = windows.opens_at.unwrap_or(not_before);
            let ahead = windows.ahead(windows.places.locate(id).1);
            pace.turn(opens_at, ahead).0.max(not_before) <= until
        })
    }

    /// Leaves the queue with its units. Where none are left, those behind wait for
    /// the next window.
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

    /// When to look again; `None`: it is time to ask. `waker` is woken if that comes
    /// sooner.
    ///
    /// One whose window would open too late asks for the last time.
    pub(crate) fn look(&self, waker: &Waker) -> Option<Instant> {
        let now = Instant::now();
        let state = &mut self.windows.lock().queue;
        let (_, start) = state.places.locate(self.id);
        let ahead = state.ahead(start);
        let opens_at = state.opens_at.unwrap_or(now);
        let (window, ask_at) = self.pace.turn(opens_at, ahead);
        let ask_at = ask_at.max(self.not_before).min(self.until);
        if ask_at <= now || window > self.until {
            return None;
        }
        let left = ask_at - now;
        // As in a line: so that not all are woken whenever one leaves.
        let look_at = ask_at
            - if left > SHORT_WAIT {
                left / 4
            } else {
                Duration::ZERO
            };
        let wake_below = self.pace.ahead_at(opens_at, look_at).min(ahead);
        let wake_below = state.base.saturating_add(wake_below);
        state.places.wake_below(self.id, wake_below, waker);
        Some(look_at)
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
