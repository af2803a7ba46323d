//! Callers leave at every stage: no unit is lost, and none is granted twice.

use tokio::time::{Instant, sleep};

use super::fixtures::whole_ms;
use crate::support::limiters::START_US;
use crate::support::prelude::*;

const INTERVAL_MS: u64 = 10;

/// A bucket as it is documented: a level that drains, and the waiting callers.
struct Model {
    full_at_ms: u64,
    capacity_ms: u64,
    paces: bool,
}

impl Model {
    fn level_ms(&self, now_ms: u64) -> u64 {
        self.full_at_ms.saturating_sub(now_ms)
    }

    /// Takes one unit, and returns when it is there.
    fn take(&mut self, now_ms: u64) -> u64 {
        let level = self.level_ms(now_ms);
        self.full_at_ms = now_ms + level + INTERVAL_MS;
        let free = if self.paces {
            INTERVAL_MS
        } else {
            self.capacity_ms
        };
        now_ms + (level + INTERVAL_MS).saturating_sub(free)
    }

    fn give_back(&mut self, now_ms: u64) {
        let level = self.level_ms(now_ms);
        self.full_at_ms = now_ms + level - level.min(INTERVAL_MS);
    }
}

async fn assert_stands(limiter: &Limiter, model: &Model, now_ms: u64) {
    let decision = peek(limiter, "ann").await;
    let policy = decision.policies().next().unwrap();
    let level = model.level_ms(now_ms);
    assert_eq!(policy.reset_after(), ms(level), "at {now_ms} ms");
    let left = model.capacity_ms.saturating_sub(level) / INTERVAL_MS;
    assert_eq!(policy.remaining(), left, "at {now_ms} ms");
}

/// Lets callers come, poll and leave at random, and compares the bucket after each step.
async fn come_and_go(random: &mut Random, quota: Quota, capacity: u64, paces: bool) {
    let limiter = Limiter::new(paused_store(), quota);
    let started = Instant::now();
    let mut model = Model {
        full_at_ms: 0,
        capacity_ms: capacity * INTERVAL_MS,
        paces,
    };
    let mut waiting: Vec<(Waiting<'_>, Option<u64>)> = Vec::new();
    for _ in 0..1_000 {
        let now = whole_ms(started.elapsed());
        match random.below(6) {
            0 | 1 => waiting.push((Box::pin(limiter.acquire("ann", ms(100_000))), None)),
            2 | 3 if !waiting.is_empty() => {
                let place = random.below(waiting.len() as u64) as usize;
                let (future, turn) = &mut waiting[place];
                let expected = *turn.get_or_insert_with(|| model.take(now));
                match poll(future) {
                    Poll::Ready(permit) => {
                        assert!(permit.unwrap().is_allowed());
                        assert!(expected <= now, "before its moment");
                        drop(waiting.swap_remove(place));
                    }
                    Poll::Pending => assert!(expected > now, "after its moment"),
                }
            }
            4 if !waiting.is_empty() => {
                let place = random.below(waiting.len() as u64) as usize;
                let (future, turn) = waiting.swap_remove(place);
                drop(future);
                if let Some(left) = turn.filter(|left| *left > now) {
                    model.give_back(now);
                    // The waiters behind move up.
                    let turns = waiting.iter_mut().filter_map(|(_, turn)| turn.as_mut());
                    for turn in turns.filter(|turn| **turn > left) {
                        *turn -= INTERVAL_MS;
                    }
                }
            }
            // Often exactly at the moment of a waiter.
            _ => match waiting.iter().filter_map(|(_, turn)| *turn).min() {
                Some(turn) if turn > now && random.below(2) == 0 => sleep(ms(turn - now)).await,
                _ => sleep(ms(random.below(15))).await,
            },
        }
        assert_stands(&limiter, &model, whole_ms(started.elapsed())).await;
    }
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn random_arrivals_and_departures_leave_the_exact_level() {
    let mut random = Random::new();
    for _ in 0..10 {
        let burst = 1 + random.below(5);
        let bucket = TokenBucket::per_second(100).burst(burst);
        let quota = bucket.try_into().unwrap();
        come_and_go(&mut random, quota, burst, false).await;
        let queue = LeakyBucket::per_second(100).queue(200);
        come_and_go(&mut random, queue.try_into().unwrap(), 201, true).await;
    }
}

/// A waiter that leaves gets back what still counts, in a bucket, a window and a log.
#[tokio::test(start_paused = true)]
async fn mixed_policies_are_refunded_what_still_counts() {
    let mut random = Random::new();
    for round in 0..20 {
        let store = paused_store();
        let policies = [
            Policy::new("bucket", TokenBucket::per_second(20).burst(1)),
            Policy::new("window", FixedWindow::new(10_000, ms(1_000))),
            Policy::new("log", SlidingLog::new(10_000, ms(700))),
            Policy::new("sliding", SlidingWindow::new(5_000, ms(1_000))),
        ];
        let limiter = limiter_of(store.clone(), policies);
        let started = Instant::now();
        let wall_ms = |now: u64| START_US / 1_000 + now;
        let mut full_at = 0;
        // The end and the count of the window, the entries of the log, and the counts by window
        // of the clock.
        let (mut window, mut log) = ((0, 0_u64), Vec::<u64>::new());
        let mut counts = HashMap::<u64, u64>::new();
        let mut waiting = Vec::new();
        for _ in 0..300 {
            let now = whole_ms(started.elapsed());
            match random.below(5) {
                0 | 1 => {
                    let mut future = Box::pin(limiter.acquire("ann", ms(100_000)));
                    let is_ready = poll(&mut future).is_ready();
                    assert_eq!(is_ready, full_at <= now);
                    full_at = full_at.max(now) + 50;
                    if window.0 <= now {
                        window = (now + 1_000, 0);
                    }
                    window.1 += 1;
                    log.push(now);
                    *counts.entry(wall_ms(now) / 1_000).or_default() += 1;
                    if !is_ready {
                        waiting.push((future, now, window.0, full_at - 50));
                    }
                }
                2 | 3 if !waiting.is_empty() => {
                    let place = random.below(waiting.len() as u64) as usize;
                    let (future, taken, ends, left) = waiting.swap_remove(place);
                    drop(future);
                    if left <= now {
                        continue;
                    }
                    // The waiters behind move up.
                    for (_, _, _, turn) in waiting.iter_mut().filter(|other| other.3 > left) {
                        *turn -= 50;
                    }
                    let level = full_at.saturating_sub(now);
                    full_at = now + level.saturating_sub(50);
                    if window.0 == ends && ends > now {
                        window.1 -= 1;
                    }
                    if taken + 700 > now {
                        log.remove(log.iter().position(|at| *at == taken).unwrap());
                    }
                    if wall_ms(taken) / 1_000 == wall_ms(now) / 1_000 {
                        *counts.get_mut(&(wall_ms(now) / 1_000)).unwrap() -= 1;
                    }
                }
                _ => sleep(ms(random.below(100))).await,
            }
            let now = whole_ms(started.elapsed());
            let left = left_of(&peek(&limiter, "ann").await);
            let used = if window.0 > now { window.1 } else { 0 };
            let entries = log.iter().filter(|at| **at + 700 > now).count() as u64;
            let (this, part) = (wall_ms(now) / 1_000, 1_000 - wall_ms(now) % 1_000);
            let count = |window: u64| counts.get(&window).copied().unwrap_or(0);
            let sliding = count(this) + (count(this - 1) * part).div_ceil(1_000);
            let expected = [
                u64::from(full_at <= now),
                10_000 - used,
                10_000 - entries,
                5_000 - sliding,
            ];
            assert_eq!(left, expected, "round {round}, at {now} ms");
            // A waiter is polled at its moment at the latest, and has then gone on.
            waiting.retain_mut(|(future, _, _, turn)| {
                let is_ready = poll(future).is_ready();
                assert!(!is_ready || *turn <= now, "early");
                !is_ready
            });
        }
    }
}
