//! Threads that come and go lose no request.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tower::{Layer, Service};
use tower_throttle::{Limiter, MemoryStore, Policy, RateLimitLayer, TokenBucket};

use super::assert_counted;
use crate::support::web::{at_once, hello, plain};

const CALLS: u64 = 50;

/// Threads of which most end before others start, in a layer and a limiter, while another thread
/// takes snapshots. No number that it sees ever falls.
#[test]
fn requests_of_short_lived_threads_are_all_counted() {
    const THREADS: u64 = 400;

    let all = || Policy::new("all", TokenBucket::per_day(1_000_000)).shared();
    let layer = RateLimitLayer::new(all());
    let limiter = Limiter::new(MemoryStore::new(), all());
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..THREADS / 4 {
                    let once = || {
                        let mut service = layer.layer(tower::service_fn(hello));
                        for _ in 0..CALLS {
                            assert!(at_once(service.call(plain())).is_ok());
                            assert!(limiter.check_now("ann").is_ok());
                        }
                    };
                    thread::scope(|scope| {
                        scope.spawn(once);
                    });
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (mut requests, mut checks) = (0, 0);
        while done.load(Ordering::Relaxed) < 4 {
            let (seen, of_limiter) = (layer.metrics(), limiter.metrics());
            assert!(seen.requests.allowed >= requests);
            requests = seen.requests.allowed;
            let allowed = of_limiter.policy("all").expect("a policy").allowed;
            assert!(allowed >= checks);
            checks = allowed;
        }
    });
    let total = THREADS * CALLS;
    let expected = format!("allowed {total}, by store {total}, all: allowed {total}");
    assert_counted(&layer.metrics(), &expected);
    assert_counted(&limiter.metrics(), &expected);
}

/// More threads at once than have counters of their own.
#[test]
fn requests_of_many_threads_at_once_are_all_counted() {
    const THREADS: usize = 300;

    let all = Policy::new("all", TokenBucket::per_day(1_000_000)).shared();
    let limiter = Limiter::new(MemoryStore::new(), all);
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                assert!(limiter.check_now("ann").is_ok());
                together.wait();
                for _ in 1..CALLS {
                    assert!(limiter.check_now("ann").is_ok());
                }
            });
        }
    });
    let total = THREADS as u64 * CALLS;
    let expected = format!("allowed {total}, by store {total}, all: allowed {total}");
    assert_counted(&limiter.metrics(), &expected);
}
