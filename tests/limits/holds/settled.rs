//! What a settlement charges.

use std::pin::pin;

use tower_throttle::metrics::Settlements;

use super::{Watched, day, limiter, remaining};
use crate::support::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

/// One of each algorithm that can hold.
fn quotas() -> Vec<Quota> {
    let quotas = [
        TokenBucket::new(100, DAY).try_into(),
        TokenBucket::new(100, DAY).refill_at_once().try_into(),
        TokenBucket::without_refill(100).try_into(),
        LeakyBucket::new(100, DAY).try_into(),
        FixedWindow::new(100, DAY).try_into(),
        SlidingWindow::new(100, DAY).try_into(),
        SlidingLog::new(100, DAY).try_into(),
    ];
    quotas.map(|quota| quota.expect("a quota")).to_vec()
}

#[tokio::test(start_paused = true)]
async fn what_was_used_is_charged_and_the_rest_is_released() {
    for quota in quotas() {
        let store = Watched::new();
        let limiter = limiter(&store, quota);
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        assert!(reserved.is_allowed(), "{quota:?}");
        let held = reserved.decision().policies().next().expect("a policy");
        assert_eq!(
            (held.held_by_request(), held.remaining()),
            (40, 60),
            "{quota:?}"
        );
        assert_eq!(remaining(&limiter).await, 60, "{quota:?}");

        let settled = reserved.settle(15).await.expect("a settlement");
        let decision = settled.decision();
        let policy = decision.policies().next().expect("a policy");
        assert_eq!(
            (policy.charged(), policy.remaining()),
            (15, 85),
            "{quota:?}"
        );
        assert_eq!(settled.uncharged(), 0, "{quota:?}");
        assert_eq!(remaining(&limiter).await, 85, "{quota:?}");
        assert_eq!(store.calls(Operation::Settle), 1, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_charged_in_full_once() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    drop(limiter.reserve("ann", 40).await.expect("a decision"));
    assert_eq!(remaining(&limiter).await, 60);
    super::pass(super::LIFETIME * 5).await;
    assert_eq!(remaining(&limiter).await, 60);
    assert_eq!(store.calls(Operation::Settle), 1);

    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    drop(reserved.release_on_drop());
    assert_eq!(remaining(&limiter).await, 60);
}

#[tokio::test(start_paused = true)]
async fn more_than_was_held_is_a_debt_up_to_the_most_that_may_be_owed() {
    for quota in quotas() {
        let store = Watched::new();
        let policy = Policy::new("tokens", quota)
            .hold_for(super::LIFETIME)
            .max_debt(30);
        let limiter = Limiter::new(Arc::clone(&store), policy);
        let reserved = limiter.reserve("ann", 80).await.expect("a decision");
        let settled = reserved.settle(125).await.expect("a settlement");
        assert_eq!(
            (settled.charged(), settled.uncharged()),
            (125, 0),
            "{quota:?}"
        );
        assert!(!limiter.check("ann").await.expect("a decision").is_allowed());

        let reserved = limiter.reserve("bob", 80).await.expect("a decision");
        let settled = reserved.settle(u64::MAX).await.expect("a settlement");
        assert_eq!(settled.charged(), 130, "{quota:?}");
        assert_eq!(settled.uncharged(), u64::MAX - 130, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_debts_no_more_than_what_is_left_is_charged_beyond_what_was_held() {
    for quota in quotas() {
        let policy = Policy::new("tokens", quota)
            .hold_for(super::LIFETIME)
            .max_debt(0);
        let limiter = Limiter::new(Watched::new(), policy);
        let other = limiter.reserve("ann", 15).await.expect("a decision");
        let reserved = limiter.reserve("ann", 80).await.expect("a decision");
        // The 15 units that the other holds are not to be had.
        let settled = reserved.settle(125).await.expect("a settlement");
        assert_eq!(
            (settled.charged(), settled.uncharged()),
            (85, 40),
            "{quota:?}"
        );
        other.settle(15).await.expect("a settlement");
        assert_eq!(remaining(&limiter).await, 0, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_held_at_once_than_the_quota() {
    let limiter = limiter(&Watched::new(), day());
    let mut held = Vec::new();
    for _ in 0..15 {
        let reserved = limiter.reserve("ann", 10).await.expect("a decision");
        if reserved.is_allowed() {
            held.push(reserved);
        } else {
            // It is not known when they will be settled.
            let wait = reserved.decision().retry_after();
            assert_eq!(wait, Some(Duration::from_secs(1)));
        }
    }
    assert_eq!(held.len(), 10);
    assert!(!limiter.check("ann").await.expect("a decision").is_allowed());
    let last = held.pop().expect("ten");
    last.settle(4).await.expect("a settlement");
    assert_eq!(remaining(&limiter).await, 6);
}

#[tokio::test(start_paused = true)]
async fn policies_that_do_not_hold_are_charged_at_once() {
    let store = Watched::new();
    let limiter = Limiter::builder()
        .store(Arc::clone(&store))
        .policy(Policy::new("requests", FixedWindow::per_day(1_000)))
        .policy(Policy::new("tokens", FixedWindow::per_day(100)).hold_for(super::LIFETIME))
        .policy(Policy::new("bytes", FixedWindow::per_day(500)).hold_for(super::LIFETIME))
        .build()
        .expect("a limiter");
    let left = async || {
        let decision = limiter.peek("ann").await.expect("a decision");
        let left = decision.policies().map(|policy| policy.remaining());
        left.collect::<Vec<_>>()
    };
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    assert_eq!(left().await, [960, 60, 460]);
    let settled = reserved.settle(10).await.expect("a settlement");
    let named = settled.decision().policies().map(|policy| policy.name());
    assert_eq!(named.collect::<Vec<_>>(), ["tokens", "bytes"]);
    assert_eq!(left().await, [960, 90, 490]);
    // Each is a call of its own.
    assert_eq!(store.calls(Operation::Settle), 2);
}

#[tokio::test(start_paused = true)]
async fn a_denial_holds_nothing() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let denied = limiter.reserve("ann", 101).await.expect("a decision");
    assert!(!denied.is_allowed());
    let settled = denied.settle(7).await.expect("nothing to settle");
    assert_eq!(settled.decision().policies().len(), 0);
    assert_eq!(
        (remaining(&limiter).await, store.calls(Operation::Settle)),
        (100, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_holds_nothing_cannot_reserve() {
    let limiter = Limiter::new(MemoryStore::new(), FixedWindow::per_day(100));
    let error = limiter.reserve("ann", 1).await.expect_err("a mistake");
    assert!(error.is_unsupported());
    assert!(error.to_string().contains("Policy::hold_for"), "{error}");
}

/// Outside of a runtime, the store in memory decides and settles at once.
#[test]
fn no_runtime_is_needed_in_memory() {
    let policy = Policy::new("tokens", FixedWindow::per_day(100)).hold_for(super::LIFETIME);
    let limiter = Limiter::new(MemoryStore::new(), policy);
    let left = pin!(async {
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        reserved.settle(10).await.expect("a settlement");
        drop(limiter.reserve("ann", 5).await.expect("a decision"));
        remaining(&limiter).await
    });
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(left.poll(&mut context), Poll::Ready(85));
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_holds_and_their_settlement_charges_nothing() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    limiter.reset("ann").await.expect("a reset");
    assert_eq!(remaining(&limiter).await, 100);
    reserved.settle(40).await.expect("a settlement");
    assert_eq!(remaining(&limiter).await, 100);
    assert_eq!(limiter.metrics().store.settlements.late, 1);
}

#[tokio::test(start_paused = true)]
async fn each_settlement_is_counted_once() {
    let limiter = limiter(&Watched::new(), day());
    let reserve = async || limiter.reserve("ann", 10).await.expect("a decision");
    let all = [
        reserve().await,
        reserve().await,
        reserve().await,
        reserve().await,
    ];
    assert_eq!(limiter.metrics().store.unsettled_units, 40);
    let [first, second, third, fourth] = all;
    first.settle(10).await.expect("a settlement");
    second.settle(3).await.expect("a settlement");
    third.release().await.expect("a settlement");
    drop(fourth);
    let seen = limiter.metrics().store;
    assert_eq!(seen.unsettled_units, 0);
    let mut expected = Settlements::default();
    (expected.charged, expected.partial, expected.released) = (2, 1, 1);
    assert_eq!(seen.settlements, expected);
    let text = tower_throttle::metrics::to_prometheus([&limiter.metrics()]);
    let line = r#"tower_throttle_settlements_total{store="custom",result="charged"} 2"#;
    assert!(text.contains(line), "{text}");
}

/// It holds and settles as an enforced policy would, and denies nothing.
#[tokio::test(start_paused = true)]
async fn a_shadow_policy_holds_and_is_settled() {
    let store = Watched::new();
    let limiter = Limiter::builder()
        .store(Arc::clone(&store))
        .policy(
            Policy::new("tokens", FixedWindow::per_day(100))
                .hold_for(super::LIFETIME)
                .shadow(),
        )
        .on_store_failure(OnStoreFailure::Allow)
        .build()
        .expect("a limiter");
    let left = async || {
        let decision = limiter.peek("ann").await.expect("a decision");
        decision
            .shadow_policies()
            .next()
            .map(|policy| policy.remaining())
    };
    let reserved = limiter.reserve("ann", 60).await.expect("a decision");
    let beyond = limiter.reserve("ann", 60).await.expect("a decision");
    assert!(beyond.is_allowed());
    assert_eq!(beyond.decision().shadow_denied().count(), 1);
    assert_eq!(left().await, Some(40));
    beyond.settle(60).await.expect("nothing to settle");
    assert_eq!(
        (left().await, store.calls(Operation::Settle)),
        (Some(40), 0)
    );
    reserved.settle(5).await.expect("a settlement");
    assert_eq!(left().await, Some(95));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_lapses_although_the_clock_has_stepped_back() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let quota = FixedWindow::per_hour(3);
    let limiter = Limiter::new(store, Policy::new("login", quota).hold_for(super::LIFETIME));
    let reserved = limiter.reserve("ann", 3).await.expect("a decision");
    let hour = Duration::from_secs(3_600);
    clock.set_us(clock.now_us() - 2 * 3_600_000_000);
    assert!(!limiter.check_now("ann").expect("a decision").is_allowed());
    clock.advance(3 * super::LIFETIME);
    let charged = limiter.check_now("ann").expect("a decision");
    assert!(charged.retry_after() > Some(hour / 2), "{charged:?}");
    clock.advance(hour);
    assert!(limiter.check_now("ann").expect("a decision").is_allowed());
    drop(reserved);
}
