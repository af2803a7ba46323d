//! How far a sliding window of two counters differs from an exact log.

use std::collections::VecDeque;

use super::bench::START_US;
use crate::support::prelude::*;

const WINDOW_US: u64 = 10_000_000;

/// The differences over one stream of arrivals.
#[derive(Clone, Copy, Debug, Default)]
struct Error {
    /// The part of all decisions in which an exact log differs.
    differ: f64,
    /// The most that was admitted within one window's length, relative to the limit.
    most: f64,
    /// The number of admitted requests, relative to that of the exact log.
    admitted: f64,
}

/// Drops the entries that have left the window that ends now.
fn drop_old(log: &mut VecDeque<u64>, now_us: u64) {
    while log.front().is_some_and(|at_us| at_us + WINDOW_US <= now_us) {
        log.pop_front();
    }
}

fn measure(random: &mut Random, limit: u64, load: f64) -> Error {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let window = SlidingWindow::new(limit, Duration::from_micros(WINDOW_US));
    let limiter = Limiter::new(store, window);
    let mean_us = WINDOW_US as f64 / (limit as f64 * load);
    let (mut exact, mut estimated) = (VecDeque::new(), VecDeque::new());
    let (mut differ, mut most, mut by_both) = (0, 0, (0_u64, 0_u64));
    let mut now_us = START_US;
    // At least seven windows.
    let arrivals = (20 * limit).max(4_000);
    for _ in 0..arrivals {
        now_us += (-(1.0 - random.fraction()).ln() * mean_us) as u64;
        clock.set_us(now_us);
        let decision = at_once(check(&limiter, "ann"));
        drop_old(&mut exact, now_us);
        drop_old(&mut estimated, now_us);
        let would_be = (exact.len() as u64) < limit;
        if would_be {
            exact.push_back(now_us);
            by_both.0 += 1;
        }
        if decision.is_allowed() {
            estimated.push_back(now_us);
            by_both.1 += 1;
        }
        differ += u64::from(would_be != decision.is_allowed());
        most = most.max(estimated.len() as u64);
    }
    Error {
        differ: differ as f64 / arrivals as f64,
        most: most as f64 / limit as f64,
        admitted: by_both.1 as f64 / by_both.0 as f64,
    }
}

#[test]
fn error_over_random_traffic() {
    let mut random = Random::new();
    println!("limit  load  differ    most admitted");
    // For each limit, a bound that is somewhat above the most ever seen.
    for (limit, bound) in [(5, 2.0), (20, 1.6), (100, 1.25), (1_000, 1.1)] {
        for load in [0.5, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0] {
            let mut worst = Error {
                admitted: 1.0,
                ..Error::default()
            };
            for _ in 0..4 {
                let error = measure(&mut random, limit, load);
                worst.differ = worst.differ.max(error.differ);
                worst.most = worst.most.max(error.most);
                worst.admitted = worst.admitted.min(error.admitted);
            }
            println!(
                "{limit:5}  {load:4.1}  {:5.1}%  {:5.1}%  {:5.1}%",
                100.0 * worst.differ,
                100.0 * worst.most,
                100.0 * worst.admitted
            );
            assert!(worst.most <= bound, "{worst:?}");
            // In overload, both admit about as many requests, but not the same ones.
            assert!(worst.differ <= 0.5, "{worst:?}");
            assert!(worst.admitted >= 0.8, "{worst:?}");
            if limit >= 100 && load <= 0.8 {
                assert!(worst.differ <= 0.03, "{worst:?}");
            }
        }
    }
}
