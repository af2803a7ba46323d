//! How late the machine's own timers are, measured beside a row.

use std::{sync::MutexGuard, time::Instant};

use crate::{prelude::*, support::cluster::Meanwhile};

const TICK: Duration = Duration::from_millis(2);

/// A thread that only sleeps, again and again, until it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    started: Instant,
    late: Arc<Mutex<Late>>,
    _thread: Meanwhile,
}

/// How many timers were late by so many milliseconds.
type Late = BTreeMap<u64, u64>;

impl Control {
    pub(crate) fn start() -> Self {
        let late = Arc::new(Mutex::default());
        let noted = Arc::clone(&late);
        Self {
            started: Instant::now(),
            late,
            _thread: Meanwhile::new(move |_| {
                let asked = Instant::now();
                std::thread::sleep(TICK);
                let late_ms = asked.elapsed().saturating_sub(TICK).as_millis();
                *lock(&noted).entry(late_ms as u64).or_default() += 1;
            }),
        }
    }

    /// Returns the longest delay of a timer so far.
    pub(crate) fn latest(&self) -> Duration {
        let latest_ms = lock(&self.late).keys().next_back().copied();
        Duration::from_millis(latest_ms.unwrap_or_default())
    }

    /// Returns the share of the time that the timers lost by delays of more than `margin`.
    pub(crate) fn share_lost(&self, margin: Duration) -> f64 {
        let margin_ms = margin.as_millis() as u64;
        let late = lock(&self.late);
        let lost_ms = late.range(margin_ms + 1..).map(|(ms, times)| ms * times);
        lost_ms.sum::<u64>() as f64 / self.started.elapsed().as_millis().max(1) as f64
    }
}

fn lock(late: &Mutex<Late>) -> MutexGuard<'_, Late> {
    late.lock().unwrap_or_else(PoisonError::into_inner)
}
