//! A caller that would have to wait too long is denied at once, and takes nothing.

use tokio::time::Instant;

use super::fixtures::whole_ms;
use crate::support::prelude::*;
use crate::support::web::Slow;

/// Acquires a permit. Also returns how many milliseconds that took.
async fn acquire(limiter: &Limiter, wait: Duration) -> (Permit, u64) {
    let started = Instant::now();
    let permit = limiter.acquire("ann", wait).await.unwrap();
    (permit, whole_ms(started.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn a_bound_below_the_needed_wait_is_denied_at_once() {
    // The next token comes after 1 s, and the one after it after 2 s.
    for bound in [0, 1, 100, 500, 999, 1_000, 1_001, 1_500, 1_999] {
        let limiter = Limiter::new(paused_store(), TokenBucket::per_second(1).burst(1));
        assert!(limiter.acquire("ann", ms(0)).await.unwrap().is_allowed());
        let mut first = Box::pin(limiter.acquire("ann", ms(1_000)));
        assert!(poll(&mut first).is_pending());

        let before = limiter.peek("ann").await.unwrap();
        let (permit, took) = acquire(&limiter, ms(bound)).await;
        assert!(!permit.is_allowed());
        assert_eq!(
            took, 0,
            "needs 2000 ms, may wait {bound} ms: denied, but waited first"
        );
        let decision = permit.decision();
        assert_eq!(decision.verdict(), Verdict::Denied);
        assert!(decision.retry_after().unwrap() > Duration::ZERO);
        assert_eq!(decision.delay(), Duration::ZERO);
        let after = limiter.peek("ann").await.unwrap();
        let reset = |decision: &Decision| decision.policies().next().unwrap().reset_after();
        assert_eq!(reset(&before), reset(&after), "it took something");
        assert!(first.await.unwrap().is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_later_than_the_bound_is_denied_at_once_and_reserves_nothing() {
    let limiter = Limiter::new(paused_store(), LeakyBucket::per_second(10).queue(10));
    let mut queue: Vec<_> = (0..6)
        .map(|_| Box::pin(limiter.acquire("ann", ms(10_000))))
        .collect();
    assert!(poll(&mut queue[0]).is_ready());
    for waiting in &mut queue[1..] {
        assert!(poll(waiting).is_pending());
    }
    let (permit, took) = acquire(&limiter, ms(599)).await;
    assert_eq!((permit.is_allowed(), took), (false, 0));
    let decision = permit.decision();
    assert_eq!(decision.retry_after(), Some(ms(1)));
    assert_eq!((decision.delay(), decision.charged()), (ms(0), 0));
    assert_eq!(decision.policies().next().unwrap().remaining(), 5);
    assert_eq!(left(&limiter, "ann").await, 5);
    let (permit, took) = acquire(&limiter, ms(600)).await;
    assert_eq!((permit.is_allowed(), took), (true, 600));
}

/// Not even until its answer arrives: a caller that comes meanwhile gets the free place.
#[tokio::test(start_paused = true)]
async fn a_caller_denied_for_a_late_turn_blocks_no_other() {
    let store = paused_store();
    let slow = Slow::new(store.clone());
    let queue = || Policy::new("queue", LeakyBucket::per_second(10).queue(10));
    let (limiter, behind) = (
        limiter_of(store.clone(), [queue()]),
        limiter_of(slow.clone(), [queue()]),
    );
    assert!(limiter.acquire("ann", ms(0)).await.unwrap().is_allowed());
    let mut denied = Box::pin(behind.acquire("ann", ms(0)));
    assert!(poll(&mut denied).is_pending());
    let mut next = Box::pin(limiter.acquire("ann", ms(1_000)));
    assert!(poll(&mut next).is_pending());
    slow.gate.add_permits(10);
    assert!(!denied.await.unwrap().is_allowed());
    let next = next.await.unwrap();
    assert_eq!(
        next.decision().delay(),
        ms(100),
        "the turn of a denied caller went unused"
    );
}

#[test]
fn a_wait_of_zero_never_waits() {
    let policies = [
        Policy::new("a", TokenBucket::per_hour(1)),
        Policy::new("b", LeakyBucket::per_hour(1).queue(5)),
        Policy::new("c", FixedWindow::per_hour(1)),
        Policy::new("d", SlidingWindow::per_hour(1)),
        Policy::new("e", SlidingLog::per_hour(1)),
        Policy::new("f", Concurrency::new(1)),
        Policy::new("g", TokenBucket::without_refill(1)),
    ];
    for policy in policies {
        let limiter = Limiter::new(MemoryStore::new(), policy);
        let held = at_once(limiter.acquire("ann", ms(0))).unwrap();
        assert!(held.is_allowed());
        let denied = at_once(limiter.acquire("ann", ms(0))).unwrap();
        assert!(!denied.is_allowed());
        assert_eq!(
            left(&limiter, "ann").now(),
            u64::from(limiter_is_queue(&limiter)) * 5
        );
    }
}

fn limiter_is_queue(limiter: &Limiter) -> bool {
    format!("{limiter:?}").contains("paces: true")
}

trait Now: Future + Sized {
    fn now(self) -> Self::Output {
        at_once(self)
    }
}

impl<F: Future> Now for F {}

#[tokio::test(start_paused = true)]
async fn windows_and_logs_are_waited_for_and_then_admit() {
    let policies = [
        Policy::new("window", FixedWindow::new(2, ms(1_000))),
        Policy::new("log", SlidingLog::new(2, ms(1_000))),
        Policy::new("at once", TokenBucket::new(2, ms(1_000)).refill_at_once()),
    ];
    for policy in policies {
        let limiter = Limiter::new(paused_store(), policy.clone());
        for _ in 0..2 {
            assert_eq!(acquire(&limiter, ms(0)).await.1, 0);
        }
        tokio::time::sleep(ms(300)).await;
        let (permit, took) = acquire(&limiter, ms(699)).await;
        assert_eq!((permit.is_allowed(), took), (false, 0), "{policy:?}");
        assert_eq!(permit.decision().retry_after(), Some(ms(700)));
        let (permit, took) = acquire(&limiter, ms(700)).await;
        assert_eq!((permit.is_allowed(), took), (true, 700), "{policy:?}");
        assert_eq!(left(&limiter, "ann").await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sliding_window_is_waited_for_and_then_admits() {
    let limiter = Limiter::new(paused_store(), SlidingWindow::new(2, ms(1_000)));
    for _ in 0..2 {
        assert_eq!(acquire(&limiter, ms(0)).await.1, 0);
    }
    let wait = limiter.peek("ann").await.unwrap().retry_after().unwrap();
    let (permit, took) = acquire(&limiter, wait - ms(1)).await;
    assert_eq!((permit.is_allowed(), took), (false, 0));
    let (permit, took) = acquire(&limiter, wait).await;
    assert_eq!(
        (permit.is_allowed(), u128::from(took)),
        (true, wait.as_millis())
    );
}

/// With the longest wait, nothing overflows, and units that never come deny the caller.
#[tokio::test(start_paused = true)]
async fn the_longest_wait() {
    let policies = [
        (Policy::new("a", TokenBucket::per_second(1).burst(1)), 1_000),
        (Policy::new("b", LeakyBucket::per_second(1).queue(5)), 1_000),
        (Policy::new("c", FixedWindow::new(1, ms(1_000))), 1_000),
        (Policy::new("e", SlidingLog::new(1, ms(1_000))), 1_000),
        (
            Policy::new("f", FixedWindow::new(1, ms(100 * 365 * 86_400_000))),
            0,
        ),
        (Policy::new("g", TokenBucket::without_refill(1)), 0),
    ];
    for (policy, waits) in policies {
        let limiter = Limiter::new(paused_store(), policy.clone());
        assert!(acquire(&limiter, Duration::MAX).await.0.is_allowed());
        let (permit, took) = acquire(&limiter, Duration::MAX).await;
        assert_eq!(took, waits, "{policy:?}");
        assert_eq!(permit.is_allowed(), waits > 0);
        for units in [1 << 52, 1 << 53, u64::MAX] {
            let denied = limiter
                .acquire_n("ann", units, Duration::MAX)
                .await
                .unwrap();
            assert_eq!(
                denied.decision().verdict(),
                Verdict::Impossible,
                "{policy:?}"
            );
        }
    }
}
