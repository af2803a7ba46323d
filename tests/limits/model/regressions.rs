//! Single cases that the walks have found.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Builder;
use tower_throttle::{
    Concurrency, FixedWindow, Limiter, ManualClock, MemoryStore, Policy, SlidingLog, SlidingWindow,
    TokenBucket,
};

fn memory() -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (clock, store)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// An admission has no wait.
#[test]
fn take_up_to_in_debt_takes_nothing() {
    run(async {
        let (_, store) = memory();
        let limiter = Limiter::new(store, FixedWindow::new(4, TEN_SECONDS));
        let _ = limiter.debit("ann", 6).await.unwrap();
        let decision = limiter.take_up_to("ann", 0).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.retry_after(), None);
        assert_eq!(decision.denied_by().count(), 0);
    });
}

#[test]
fn a_sliding_window_reports_how_much_it_refunded() {
    run(async {
        let (clock, store) = memory();
        let limiter = Limiter::new(store, SlidingWindow::new(10, TEN_SECONDS));
        let _ = limiter.check_n("ann", 10).await.unwrap();
        clock.advance(TEN_SECONDS);
        // 10 units of the last window count. Of this window there is nothing to refund.
        let refund = limiter.credit("ann", 4).await.unwrap();
        assert_eq!(
            limiter
                .peek("ann")
                .await
                .unwrap()
                .policies()
                .next()
                .unwrap()
                .remaining(),
            0
        );
        let policy = refund.decision().policies().next().unwrap();
        assert_eq!((policy.charged(), policy.remaining()), (0, 0));
        assert_eq!(policy.reset_after(), TEN_SECONDS);
    });
}

#[test]
fn a_log_is_empty_when_all_its_entries_are_old() {
    run(async {
        let (clock, store) = memory();
        let limiter = Limiter::new(store, SlidingLog::new(10, TEN_SECONDS));
        let _ = limiter.check("ann").await.unwrap();
        clock.advance(Duration::from_secs(6));
        let _ = limiter.check("ann").await.unwrap();
        let refund = limiter.credit("ann", 1).await.unwrap();
        let policy = refund.decision().policies().next().unwrap();
        let peek = limiter.peek("ann").await.unwrap();
        let peeked = peek.policies().next().unwrap().reset_after();
        assert_eq!(peeked, Duration::from_secs(4));
        assert_eq!(policy.reset_after(), peeked);
    });
}

/// A refill brings `limit` tokens, and pays back no more of a debt.
#[test]
fn a_debt_to_a_bucket_refilled_at_once_is_paid_back() {
    run(async {
        let (clock, store) = memory();
        let bucket = TokenBucket::new(10, TEN_SECONDS).refill_at_once();
        let limiter = Limiter::new(store, bucket);
        let _ = limiter.debit("ann", 20).await.unwrap();
        clock.advance(TEN_SECONDS);
        let peek = limiter.peek("ann").await.unwrap();
        assert_eq!(peek.policies().next().unwrap().remaining(), 0);
    });
}

/// A window with a limit of 0 still ends.
#[test]
fn a_window_of_limit_0_reports_when_it_ends() {
    run(async {
        let (_, store) = memory();
        let of = |limit| {
            let policy = Policy::new("one name", FixedWindow::new(limit, TEN_SECONDS));
            Limiter::new(store.clone(), policy.cost(0))
        };
        let _ = of(1).check_n("ann", 1).await.unwrap();
        let decision = of(0).check("ann").await.unwrap();
        assert_eq!(decision.retry_after(), Some(TEN_SECONDS));
    });
}

/// Taken units count up to twice the new burst.
#[test]
fn old_numbers_lock_no_caller_out_of_a_bucket_refilled_at_once() {
    run(async {
        let (_, store) = memory();
        let of = |limit, burst| {
            let bucket = TokenBucket::new(limit, TEN_SECONDS).burst(burst);
            let policy = Policy::new("one name", bucket.refill_at_once());
            Limiter::new(store.clone(), policy)
        };
        let _ = of(1_000, 1_000).check_n("ann", 1_000).await.unwrap();
        let decision = of(1, 5).peek("ann").await.unwrap();
        let policy = decision.policies().next().unwrap();
        assert!(policy.reset_after() <= 10 * TEN_SECONDS, "{policy:?}");
    });
}

/// A shorter lifetime also applies to permits that are held.
#[test]
fn permits_under_a_shorter_lifetime_end_at_the_reported_time() {
    run(async {
        let (clock, store) = memory();
        let of = |seconds| {
            let permits = Concurrency::new(1).lifetime(Duration::from_secs(seconds));
            Limiter::new(store.clone(), Policy::new("one name", permits))
        };
        let held = of(36_000).acquire("ann", Duration::ZERO).await.unwrap();
        let denied = of(3_600).acquire("ann", Duration::ZERO).await.unwrap();
        let wait = denied.decision().retry_after().unwrap();
        assert_eq!(wait, Duration::from_secs(3_600));
        clock.advance(wait);
        assert!(of(3_600).peek("ann").await.unwrap().is_allowed());
        drop(held);
    });
}

/// A bucket that is full before the clock's next tick counts as full.
#[test]
fn a_check_within_a_tick_of_full_is_allowed() {
    run(async {
        let (clock, store) = memory();
        let bucket = TokenBucket::new(1, Duration::from_nanos(1_500)).burst(1);
        let limiter = Limiter::new(store, bucket);
        assert!(limiter.check("ann").await.unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
        let peek = limiter.peek("ann").await.unwrap();
        assert!(peek.is_allowed());
        assert_eq!(peek.policies().next().unwrap().remaining(), 1);
    });
}

/// "The first period starts with the first token that is taken from a full bucket."
#[test]
fn a_credit_that_fills_a_bucket_refilled_at_once_ends_its_period() {
    run(async {
        let (clock, store) = memory();
        let bucket = TokenBucket::new(10, TEN_SECONDS).refill_at_once();
        let limiter = Limiter::new(store, bucket);
        let _ = limiter.check("ann").await.unwrap();
        let _ = limiter.credit("ann", 1).await.unwrap();
        clock.advance(Duration::from_secs(9));
        let decision = limiter.check_n("ann", 10).await.unwrap();
        let policy = decision.policies().next().unwrap();
        assert_eq!(policy.reset_after(), TEN_SECONDS);
        clock.advance(Duration::from_secs(1));
        assert!(!limiter.check("ann").await.unwrap().is_allowed());
    });
}
