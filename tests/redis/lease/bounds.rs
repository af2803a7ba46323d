//! How many units are admitted, by the virtual clock that all processes share.

use std::{sync::Arc, time::Duration};

use tower_throttle::{Clock, Limiter, ManualClock, RedisStore, TokenBucket};

use super::*;

const PROCESSES: u64 = 4;

/// The level of an exact bucket without a bound, in nanoseconds of refill.
struct Exact {
    interval_ns: u64,
    taken_ns: u64,
    at_us: u64,
    highest_ns: u64,
}

impl Exact {
    fn take(&mut self, now_us: u64) {
        let passed_ns = 1_000 * (now_us - self.at_us);
        self.taken_ns = self.taken_ns.saturating_sub(passed_ns) + self.interval_ns;
        self.at_us = now_us;
        self.highest_ns = self.highest_ns.max(self.taken_ns);
    }
}

async fn press(rate: u64, burst: u64, per_ms: u64, silent_ms: u64) -> (Asked, u64, u64) {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let bucket = TokenBucket::per_second(rate).burst(burst);
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let store = RedisStore::builder().timeout(DEADLINE).clock(clock.clone());
            let store = store.connect(&server.url()).expect("a store");
            Limiter::new(store, leased(bucket))
        })
        .collect();
    let started_us = clock.now_us();
    let mut exact = Exact {
        interval_ns: 1_000_000_000 / rate,
        taken_ns: 0,
        at_us: started_us,
        highest_ns: 0,
    };
    let mut asked = Asked::default();
    for _ in 0..3 {
        for _ in 0..60 {
            for process in &processes {
                for _ in 0..per_ms {
                    if asked.count(&process.check("ann").await, 1) {
                        exact.take(clock.now_us());
                    }
                }
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_millis(1));
        }
        clock.advance(Duration::from_millis(silent_ms));
    }
    let passed_us = clock.now_us() - started_us;
    let capacity_ns = burst * exact.interval_ns;
    (
        asked,
        passed_us,
        exact.highest_ns.saturating_sub(capacity_ns) / exact.interval_ns,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_long_run_rate_is_never_exceeded() {
    // More checks come than the bucket admits.
    let (rate, burst) = (10_000, 4_000);
    let (asked, passed_us, _) = press(rate, burst, 15, 0).await;
    assert!(asked.from_leases > 0, "{asked:?}");
    let granted = burst + rate * passed_us / 1_000_000;
    let held = PROCESSES * (burst / 8);
    assert!(asked.admitted <= granted + held, "{asked:?} of {granted}");
    // Not much of the quota is lost either.
    assert!(asked.admitted >= granted - held, "{asked:?} of {granted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_burst_is_larger_than_the_bucket_and_what_was_held() {
    let held = PROCESSES * (4_000 / 8);
    for (rate, silent_ms, most) in [
        (10_000, 40, held),
        (10_000, 300, held),
        (10_000, 700, held),
        // What flows in within a second, as long as Redis answers in time.
        (100, 40, 100),
    ] {
        let (asked, _, extra) = press(rate, 4_000, 10, silent_ms).await;
        assert!(asked.from_leases > 0, "{asked:?}");
        assert!(extra <= most, "{extra} at {rate} after {silent_ms} ms");
    }
}

#[tokio::test]
async fn redis_decides_each_check_near_the_limit_and_in_small_buckets() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    // An eighth of the bucket would not be worth a round trip.
    let small = Limiter::new(
        store.clone(),
        Policy::new("small", TokenBucket::without_refill(127))
            .lease()
            .on_store_failure(OnStoreFailure::Deny),
    );
    let asked = exhaust(&small).await;
    assert_eq!((asked.admitted, asked.from_leases), (127, 0));

    let limiter = of(&store, 10_000);
    let mut asked = warm(&limiter).await;
    asked.add(exhaust(&limiter).await);
    all_is_back(&limiter, 10_000 - asked.admitted).await;
    // Too little came back for another lease.
    let last = exhaust(&limiter).await;
    assert_eq!(asked.admitted + last.admitted, 10_000);
    assert_eq!(last.from_leases, 0, "{last:?}");
}
