//! A caller that would have to wait too long is denied at once, and takes nothing.

use tokio::time::Instant;

use super::fixtures::whole_ms;
use crate::support::prelude::*;
use crate::support::web::Slow;

/// Acquires a permit. Also returns how many milliseconds that took.
async fn acquired(limiter: &Limiter, wait: Duration) -> (Permit, u64) {
    let started = Instant::now();
    let permit = acquire(limiter, "ann", wait).await;
    (permit, whole_ms(started.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn a_bound_below_the_needed_wait_is_denied_at_once_and_reserves_nothing() {
    for (policy, wait_ms) in [
        // The next token comes after 1 s, and the one after it after 2 s.
        (
            Policy::new("bucket", TokenBucket::per_second(1).burst(1)),
            2_000,
        ),
        (
            Policy::new("queue", LeakyBucket::per_second(1).queue(10)),
            2_000,
        ),
        (
            Policy::new("leaky", LeakyBucket::per_second(1).capacity(1)),
            2_000,
        ),
    ] {
        for bound in [0, 1, 1_000, 1_500, 1_999, 2_000] {
            let limiter = Limiter::new(paused_store(), policy.clone());
            assert!(acquire(&limiter, "ann", ms(0)).await.is_allowed());
            let first = come(&limiter, ms(1_000));
            let before = taken(&limiter).await;
            let (permit, took) = acquired(&limiter, ms(bound)).await;
            let is_allowed = bound == wait_ms;
            assert_eq!(permit.is_allowed(), is_allowed, "{policy:?}, {bound} ms");
            if is_allowed {
                assert_eq!(took, wait_ms);
                continue;
            }
            assert_eq!(took, 0, "{policy:?}, {bound} ms: denied, but waited first");
            let decision = permit.decision();
            assert_eq!(decision.verdict(), Verdict::Denied);
            assert!(decision.retry_after() > Some(ms(0)));
            assert_eq!((decision.delay(), decision.charged()), (ms(0), 0));
            assert_eq!(taken(&limiter).await, before, "it took something");
            assert!(first.await.unwrap().is_allowed());
        }
    }
}

/// Not even until its answer arrives: a caller that comes meanwhile gets the free place.
#[tokio::test(start_paused = true)]
async fn a_caller_denied_for_a_late_turn_blocks_no_other() {
    let store = paused_store();
    let slow = Slow::new(store.clone());
    let queue = || Policy::new("queue", LeakyBucket::per_second(10).queue(10));
    let (limiter, behind) = (
        Limiter::new(store, queue()),
        Limiter::new(slow.clone(), queue()),
    );
    assert!(acquire(&limiter, "ann", ms(0)).await.is_allowed());
    let denied = come(&behind, ms(0));
    let next = come(&limiter, ms(1_000));
    slow.gate.add_permits(10);
    assert!(!denied.await.unwrap().is_allowed());
    let delay = next.await.unwrap().decision().delay();
    assert_eq!(delay, ms(100), "the turn of a denied caller went unused");
}

#[test]
fn a_wait_of_zero_never_waits() {
    for (policy, remaining) in [
        (Policy::new("a", TokenBucket::per_hour(1)), 0),
        (Policy::new("b", LeakyBucket::per_hour(1).queue(5)), 5),
        (Policy::new("c", FixedWindow::per_hour(1)), 0),
        (Policy::new("d", SlidingWindow::per_hour(1)), 0),
        (Policy::new("e", SlidingLog::per_hour(1)), 0),
        (Policy::new("f", Concurrency::new(1)), 0),
        (Policy::new("g", TokenBucket::without_refill(1)), 0),
    ] {
        let limiter = Limiter::new(MemoryStore::new(), policy.clone());
        let held = at_once(acquire(&limiter, "ann", ms(0)));
        assert!(held.is_allowed());
        assert!(!at_once(acquire(&limiter, "ann", ms(0))).is_allowed());
        assert_eq!(at_once(left(&limiter, "ann")), remaining, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_and_logs_are_waited_for_and_then_admit() {
    for policy in [
        Policy::new("window", FixedWindow::new(2, ms(1_000))),
        Policy::new("aligned", FixedWindow::new(2, ms(1_000)).aligned()),
        Policy::new("month", FixedWindow::per_calendar_month(2)),
        Policy::new("sliding", SlidingWindow::new(2, ms(1_000))),
        Policy::new("log", SlidingLog::new(2, ms(1_000))),
        Policy::new("at once", TokenBucket::new(2, ms(1_000)).refill_at_once()),
    ] {
        let limiter = Limiter::new(paused_store(), policy.clone());
        for _ in 0..2 {
            assert_eq!(acquired(&limiter, ms(0)).await.1, 0);
        }
        tokio::time::sleep(ms(300)).await;
        let wait = peek(&limiter, "ann").await.retry_after().unwrap();
        let (permit, took) = acquired(&limiter, wait - ms(1)).await;
        assert_eq!((permit.is_allowed(), took), (false, 0), "{policy:?}");
        assert_eq!(permit.decision().retry_after(), Some(wait));
        let (permit, took) = acquired(&limiter, wait).await;
        let found = (permit.is_allowed(), took);
        assert_eq!(found, (true, whole_ms(wait)), "{policy:?}");
    }
}

/// With the longest wait, nothing overflows, and units that never come deny the caller.
#[tokio::test(start_paused = true)]
async fn the_longest_wait() {
    let century = ms(100 * 365 * 86_400_000);
    for (policy, waits) in [
        (Policy::new("a", TokenBucket::per_second(1).burst(1)), 1_000),
        (Policy::new("b", LeakyBucket::per_second(1).queue(5)), 1_000),
        (Policy::new("c", FixedWindow::new(1, ms(1_000))), 1_000),
        (Policy::new("e", SlidingLog::new(1, ms(1_000))), 1_000),
        (Policy::new("f", FixedWindow::new(1, century)), 0),
        (Policy::new("g", TokenBucket::without_refill(1)), 0),
    ] {
        let limiter = Limiter::new(paused_store(), policy.clone());
        assert!(acquired(&limiter, Duration::MAX).await.0.is_allowed());
        let (permit, took) = acquired(&limiter, Duration::MAX).await;
        let found = (permit.is_allowed(), took);
        assert_eq!(found, (waits > 0, waits), "{policy:?}");
        for units in [1 << 52, 1 << 53, u64::MAX] {
            let denied = limiter.acquire_n("ann", units, Duration::MAX).await;
            let verdict = denied.unwrap().decision().verdict();
            assert_eq!(verdict, Verdict::Impossible, "{policy:?}");
        }
    }
}
