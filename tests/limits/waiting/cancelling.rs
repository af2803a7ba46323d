//! Callers leave at every stage: no unit is lost, and none is granted twice.

use tokio::time::{Instant, sleep};

use super::fixtures::whole_ms;
use crate::support::limiters::START_US;
use crate::support::prelude::*;

/// A waiter that leaves before its moment gets back what still counts, in a bucket or queue, a
/// window and a log, and the waiters behind it move up.
#[tokio::test(start_paused = true)]
async fn random_arrivals_and_departures_leave_the_exact_level() {
    let mut random = Random::new();
    for round in 0..40 {
        let store = paused_store();
        // How many units there are, and how many may be taken before callers wait.
        let units = random.between(1, 5);
        let (capacity, at_once, policy) = match random.percent(50) {
            true => (
                201,
                1,
                "leaky bucket of 20 per second, queue 200".to_owned(),
            ),
            false => (units, units, format!("20 per second, burst {units}")),
        };
        let policies = [
            Policy::new("one by one", &*policy),
            Policy::new("window", FixedWindow::new(10_000, ms(1_000))),
            Policy::new("log", SlidingLog::new(10_000, ms(700))),
            Policy::new("sliding", SlidingWindow::new(5_000, ms(1_000))),
            Policy::new("aligned", FixedWindow::new(10_000, ms(1_000)).aligned()),
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
                    full_at = full_at.max(now) + 50;
                    let turn = now.max(full_at - 50 * at_once.min(full_at / 50));
                    assert_eq!(is_ready, turn == now);
                    if window.0 <= now {
                        window = (now + 1_000, 0);
                    }
                    window.1 += 1;
                    log.push(now);
                    *counts.entry(wall_ms(now) / 1_000).or_default() += 1;
                    if !is_ready {
                        waiting.push((future, now, window.0, turn));
                    }
                }
                2 | 3 if !waiting.is_empty() => {
                    let place = random.below(waiting.len() as u64) as usize;
                    let (future, taken, ends, left) = waiting.swap_remove(place);
                    drop(future);
                    if left <= now {
                        continue;
                    }
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
                // Often exactly at the moment of a waiter.
                _ => match waiting.iter().map(|(_, _, _, turn)| *turn).min() {
                    Some(turn) if turn > now && random.percent(50) => sleep(ms(turn - now)).await,
                    _ => sleep(ms(random.below(100))).await,
                },
            }
            let now = whole_ms(started.elapsed());
            let left = left_of(&peek(&limiter, "ann").await);
            let used = if window.0 > now { window.1 } else { 0 };
            let entries = log.iter().filter(|at| **at + 700 > now).count() as u64;
            let (this, part) = (wall_ms(now) / 1_000, 1_000 - wall_ms(now) % 1_000);
            let count = |window: u64| counts.get(&window).copied().unwrap_or(0);
            let sliding = count(this) + (count(this - 1) * part).div_ceil(1_000);
            let expected = [
                capacity - full_at.saturating_sub(now).div_ceil(50).min(capacity),
                10_000 - used,
                10_000 - entries,
                5_000 - sliding,
                10_000 - count(this),
            ];
            assert_eq!(left, expected, "round {round}, at {now} ms");
            // Some look late, and some leave before they do.
            waiting.retain_mut(|(future, _, _, turn)| {
                let is_ready = random.percent(50) && {
                    // Once more if it lets others before it go on first.
                    let is_ready = poll(future).is_ready() || poll(future).is_ready();
                    assert_eq!(is_ready, *turn <= now, "its moment is {turn} ms");
                    is_ready
                };
                !is_ready
            });
        }
    }
}
