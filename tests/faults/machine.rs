//! Records when the machine stalled, to distinguish its stalls from the limiter's.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    checker::{self, Latency},
    ledger::{Entry, Recorder},
};

const EVERY: Duration = Duration::from_millis(2);
/// Shorter stalls are not recorded.
const SHORTEST_US: u64 = 3_000;

/// In this span, a thread was ready to run for this long without running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    pub(crate) lost_us: u64,
}

/// Watches until it is stopped: how late its own thread wakes, and how long the kernel let each
/// thread of this process wait for a processor.
#[derive(Debug)]
pub(crate) struct Sampler {
    stalls: Arc<Mutex<Vec<Stall>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn start(recorder: &Recorder) -> Self {
        let stalls = Arc::new(Mutex::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (stalls, is_over) = (Arc::clone(&stalls), Arc::clone(&is_over));
            let recorder = recorder.clone();
            move || look(&recorder, &stalls, &is_over)
        });
        Self {
            stalls,
            is_over,
            thread: Some(thread),
        }
    }

    pub(crate) fn stop(self) -> Vec<Stall> {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(recorder: &Recorder, stalls: &Mutex<Vec<Stall>>, is_over: &AtomicBool) {
    let mut waited = HashMap::new();
    let mut last_us = recorder.now_us();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(EVERY);
        let now_us = recorder.now_us();
        let late_us = (now_us - last_us).saturating_sub(EVERY.as_micros() as u64);
        let lost_us = late_us.max(longest_wait_us(&mut waited));
        if lost_us >= SHORTEST_US {
            // The kernel reports a wait only when it is over.
            let from_us = last_us.min(now_us - lost_us.min(now_us));
            let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
            stalls.push(Stall {
                from_us,
                to_us: now_us,
                lost_us,
            });
        }
        last_us = now_us;
    }
}

/// Returns the longest time that a thread of this process has waited for a processor since the
/// last call; 0 if the kernel does not report it.
fn longest_wait_us(waited: &mut HashMap<std::ffi::OsString, u64>) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut longest = 0;
    for task in tasks.flatten() {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let Some(ns) = stat.split(' ').nth(1).and_then(|ns| ns.parse().ok()) else {
            continue;
        };
        let before: u64 = waited.insert(task.file_name(), ns).unwrap_or(ns);
        longest = longest.max(ns.saturating_sub(before) / 1_000);
    }
    longest
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) others: Latency,
    pub(crate) excused: usize,
    pub(crate) longest_excused: Duration,
}

/// I2, except for requests that waited for the machine: each request that exceeds the bound
/// must have met a stall that covers the excess.
pub(crate) fn answered(
    ledger: &[Entry],
    bound: Latency,
    stalls: &[Stall],
) -> Result<Answered, String> {
    let (excused, others) = sort_out(ledger, bound, stalls);
    let longest_us = excused.iter().map(Entry::took_us).max();
    Ok(Answered {
        others: checker::answered(&others, bound)?,
        excused: excused.len(),
        longest_excused: Duration::from_micros(longest_us.unwrap_or_default()),
    })
}

/// Separates requests whose excess over this bound a stall excuses from the others.
fn sort_out(ledger: &[Entry], bound: Latency, stalls: &[Stall]) -> (Vec<Entry>, Vec<Entry>) {
    let p999_us = bound.p999.as_micros() as u64;
    let is_excused = |entry: &Entry| {
        let excess_us = entry.took_us().saturating_sub(p999_us);
        let met = stalls
            .iter()
            .filter(|stall| stall.to_us >= entry.sent_us && stall.from_us <= entry.answered_us);
        excess_us > 0 && met.map(|stall| stall.lost_us).sum::<u64>() >= excess_us
    };
    ledger
        .iter()
        .cloned()
        .partition(|entry| entry.answered_us > 0 && is_excused(entry))
}

/// Returns how many requests exceeded this bound, and how many of them no stall excuses.
pub(crate) fn late(ledger: &[Entry], bound: Latency, stalls: &[Stall]) -> (usize, usize) {
    let most_us = bound.most.as_micros() as u64;
    let is_late = |entry: &&Entry| entry.took_us() > most_us;
    let (excused, others) = sort_out(ledger, bound, stalls);
    let unexcused = others.iter().filter(is_late).count();
    (
        excused.iter().filter(is_late).count() + unexcused,
        unexcused,
    )
}

#[test]
fn only_a_stall_that_covers_a_request_excuses_it() {
    use crate::ledger::Outcome;

    let entry = |sent_us: u64, took_us: u64| Entry {
        process: 0,
        id: sent_us,
        key: 1,
        cost: 1,
        outcome: Outcome::Unavailable,
        sent_us,
        answered_us: sent_us + took_us,
        remaining: None,
    };
    let bound = Latency {
        p999: Duration::from_millis(60),
        most: Duration::from_millis(100),
    };
    let ledger = [entry(1_000_000, 100), entry(2_000_000, 150_000)];
    let stall = |from_us, lost_us| Stall {
        from_us,
        to_us: from_us + lost_us,
        lost_us,
    };
    let judge = |stalls: &[Stall]| answered(&ledger, bound, stalls).map(|found| found.excused);
    assert!(judge(&[]).is_err(), "there was no stall");
    assert_eq!(late(&ledger, bound, &[]), (1, 1));
    let covers = [stall(2_010_000, 90_000)];
    assert_eq!(late(&ledger, bound, &covers), (1, 0));
    assert_eq!(judge(&[stall(2_010_000, 90_000)]), Ok(1));
    assert_eq!(
        judge(&[stall(2_010_000, 45_000), stall(2_100_000, 45_000)]),
        Ok(1)
    );
    assert!(judge(&[stall(2_010_000, 89_000)]).is_err(), "too short");
    assert!(judge(&[stall(2_150_001, 90_000)]).is_err(), "too late");
    assert!(judge(&[stall(1_900_000, 99_999)]).is_err(), "too early");
}

#[test]
fn a_stalled_thread_is_detected() {
    let recorder = Recorder::new(0);
    let sampler = Sampler::start(&recorder);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..8 * cores)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    crate::wait::until("a stall", crate::support::DEADLINE, || {
        let stalls = sampler
            .stalls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !stalls.is_empty()
    });
    is_over.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().expect("no panic");
    }
    assert!(
        sampler
            .stop()
            .iter()
            .all(|stall| stall.lost_us >= SHORTEST_US)
    );
}
