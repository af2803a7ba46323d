//! Timers with microsecond precision, in the runtime's paused time.
//!
//! Tokio's timers have ticks of a millisecond. The function that moves the time wakes these
//! timers and stops at each of their instants. It also stops at each tick, so that Tokio's
//! timers are never later.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{Instant, advance},
};

const TICK: Duration = Duration::from_millis(1);

/// Clones share their alarms.
#[derive(Clone)]
pub(crate) struct Timer {
    began: Instant,
    alarms: Arc<Mutex<Alarms>>,
}

#[derive(Default)]
struct Alarms {
    /// When, and which: of the timers at one instant, the first that was set is woken first.
    next: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: HashMap<u64, Waker>,
    set: u64,
}

impl Timer {
    /// Starts now, on a tick.
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            alarms: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for an instant.
    pub(crate) async fn until(self, at: Instant) {
        let mut set = None;
        poll_fn(|cx| {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            let mut alarms = self.alarms();
            let number = *set.get_or_insert_with(|| alarms.set(at));
            alarms.wakers.insert(number, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Runs everything that is ready now, and then everything until `at`.
    pub(crate) async fn pass_until(&self, at: Duration) {
        settle().await;
        loop {
            let now = self.now();
            let tick = TICK * (now.as_millis() as u32 + 1);
            let alarm = self.next_alarm();
            let next = alarm.map_or(tick, |alarm| tick.min(alarm - self.began));
            if next > at {
                break;
            }
            self.step(next - now).await;
        }
        self.step(at - self.now()).await;
    }

    async fn step(&self, by: Duration) {
        // Tokio's own timers fire while this moves the time.
        advance(by).await;
        let woken = self.alarms().due(Instant::now());
        woken.into_iter().for_each(Waker::wake);
        settle().await;
    }

    fn next_alarm(&self) -> Option<Instant> {
        let alarms = self.alarms();
        alarms.next.peek().map(|Reverse((at, _))| *at)
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        self.alarms
            .lock()
            .expect("nothing panics while it holds it")
    }
}

/// Runs all tasks that are ready, and then those that became ready meanwhile.
async fn settle() {
    yield_now().await;
    yield_now().await;
}

impl Alarms {
    fn set(&mut self, at: Instant) -> u64 {
        self.set += 1;
        self.next.push(Reverse((at, self.set)));
        self.set
    }

    fn due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(Reverse((at, number))) = self.next.peek().copied() {
            if at > now {
                break;
            }
            self.next.pop();
            due.extend(self.wakers.remove(&number));
        }
        due
    }
}
