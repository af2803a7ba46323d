//! What a settlement charges.

use tower_throttle::metrics::Settlements;

use super::{LIFETIME, Watched, day, limiter, pass, remaining, reserve, settle, tokens};
use crate::support::prelude::*;

/// One of each algorithm that can hold.
fn quotas() -> impl Iterator<Item = Quota> {
    let texts = "100 per day | 100 per day, refill at once | 100 without refill | \
        leaky bucket of 100 per day | fixed window of 100 per day | \
        fixed window of 100 per calendar month | sliding window of 100 per day | \
        sliding log of 100 per day";
    texts.split(" | ").map(|text| text.parse().expect(text))
}

#[tokio::test(start_paused = true)]
async fn what_was_used_is_charged_and_the_rest_is_released() {
    for quota in quotas() {
        let store = Watched::new();
        let limiter = Limiter::new(Arc::clone(&store), tokens(quota));
        let reserved = reserve(&limiter, 40).await;
        assert!(reserved.is_allowed(), "{quota:?}");
        let held = reserved.decision().policies().next().expect("a policy");
        assert_eq!((held.held_by_request(), held.remaining()), (40, 60));
        assert_eq!(remaining(&limiter).await, 60, "{quota:?}");
        let settled = reserved.settle(15).await.expect("a settlement");
        assert_eq!((settled.charged(), settled.uncharged()), (15, 0));
        assert_eq!(left_of(settled.decision()), [85], "{quota:?}");
        assert_eq!(remaining(&limiter).await, 85, "{quota:?}");
        assert_eq!(store.calls(Operation::Settle), 1, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_charged_in_full_once() {
    for quota in quotas() {
        let store = Watched::new();
        let limiter = Limiter::new(Arc::clone(&store), tokens(quota));
        drop(reserve(&limiter, 40).await);
        assert_eq!(remaining(&limiter).await, 60, "{quota:?}");
        pass(LIFETIME * 5).await;
        assert_eq!(remaining(&limiter).await, 60, "{quota:?}");
        assert_eq!(store.calls(Operation::Settle), 1, "{quota:?}");

        let reserved = reserve(&limiter, 40).await;
        drop(reserved.release_on_drop());
        assert_eq!(remaining(&limiter).await, 60, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_was_held_is_a_debt_up_to_the_most_that_may_be_owed() {
    for quota in quotas() {
        let limiter = Limiter::new(Watched::new(), tokens(quota).max_debt(30));
        let reserved = reserve(&limiter, 80).await;
        assert_eq!(settle(reserved, 125).await, (125, 0), "{quota:?}");
        assert!(!check(&limiter, "ann").await.is_allowed());

        let reserved = limiter.reserve("bob", 80).await.expect("a decision");
        let settled = settle(reserved, u64::MAX).await;
        assert_eq!(settled, (130, u64::MAX - 130), "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_debts_no_more_than_what_is_left_is_charged_beyond_what_was_held() {
    for quota in quotas() {
        let limiter = Limiter::new(Watched::new(), tokens(quota).max_debt(0));
        let other = reserve(&limiter, 15).await;
        let reserved = reserve(&limiter, 80).await;
        // The 15 units that the other holds are not to be had.
        assert_eq!(settle(reserved, 125).await, (85, 40), "{quota:?}");
        settle(other, 15).await;
        assert_eq!(remaining(&limiter).await, 0, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_held_at_once_than_the_quota() {
    for quota in quotas() {
        let limiter = Limiter::new(Watched::new(), tokens(quota));
        let mut held = Vec::new();
        for _ in 0..15 {
            let reserved = reserve(&limiter, 10).await;
            if reserved.is_allowed() {
                held.push(reserved);
            } else {
                // It is not known when they will be settled.
                let wait = reserved.decision().retry_after();
                assert_eq!(wait, Some(Duration::from_secs(1)), "{quota:?}");
            }
        }
        assert_eq!(held.len(), 10, "{quota:?}");
        assert!(!check(&limiter, "ann").await.is_allowed(), "{quota:?}");
        let last = held.pop().expect("ten");
        settle(last, 4).await;
        assert_eq!(remaining(&limiter).await, 6, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_do_not_hold_are_charged_at_once() {
    let store = Watched::new();
    let requests = Policy::new("requests", FixedWindow::per_day(1_000));
    let bytes = Policy::new("bytes", FixedWindow::per_day(500)).hold_for(LIFETIME);
    let limiter = limiter_of(Arc::clone(&store), [requests, tokens(day()), bytes]);
    let left = async || left_of(&peek(&limiter, "ann").await);
    let reserved = reserve(&limiter, 40).await;
    assert_eq!(left().await, [960, 60, 460]);
    let settled = reserved.settle(10).await.expect("a settlement");
    let named = settled.decision().policies().map(|policy| policy.name());
    assert_eq!(named.collect::<Vec<_>>(), ["tokens", "bytes"]);
    assert_eq!(left().await, [960, 90, 490]);
    // Each is a call of its own.
    assert_eq!(store.calls(Operation::Settle), 2);
}

#[tokio::test]
async fn a_limiter_that_holds_nothing_cannot_reserve() {
    let limiter = Limiter::new(MemoryStore::new(), day());
    let error = limiter.reserve("ann", 1).await.expect_err("a mistake");
    assert!(error.is_unsupported());
    assert!(error.to_string().contains("Policy::hold_for"), "{error}");
}

/// Outside of a runtime, the store in memory decides and settles at once.
#[test]
fn no_runtime_is_needed_in_memory() {
    let limiter = Limiter::new(MemoryStore::new(), tokens(day()));
    let reserved = at_once(reserve(&limiter, 40));
    at_once(settle(reserved, 10));
    drop(at_once(reserve(&limiter, 5)));
    assert_eq!(at_once(remaining(&limiter)), 85);
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_holds_and_their_settlement_charges_nothing() {
    for quota in quotas() {
        let limiter = Limiter::new(Watched::new(), tokens(quota));
        let reserved = reserve(&limiter, 40).await;
        limiter.reset("ann").await.expect("a reset");
        assert_eq!(remaining(&limiter).await, 100, "{quota:?}");
        settle(reserved, 40).await;
        assert_eq!(remaining(&limiter).await, 100, "{quota:?}");
        assert_eq!(limiter.metrics().store.settlements.late, 1, "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_settlement_is_counted_once() {
    let limiter = limiter(&Watched::new());
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(reserve(&limiter, 10).await);
    }
    assert_eq!(limiter.metrics().store.unsettled_units, 40);
    let [first, second, third, fourth] = held.try_into().expect("four");
    settle(first, 10).await;
    settle(second, 3).await;
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
    let limiter = Limiter::new(Arc::clone(&store), tokens(day()).shadow());
    let left = async || {
        let decision = peek(&limiter, "ann").await;
        let mut shadows = decision.shadow_policies();
        shadows.next().map(|policy| policy.remaining())
    };
    let reserved = reserve(&limiter, 60).await;
    let beyond = reserve(&limiter, 60).await;
    assert!(beyond.is_allowed());
    assert_eq!(beyond.decision().shadow_denied().count(), 1);
    assert_eq!(left().await, Some(40));
    settle(beyond, 60).await;
    assert_eq!(left().await, Some(40));
    assert_eq!(store.calls(Operation::Settle), 0);
    settle(reserved, 5).await;
    assert_eq!(left().await, Some(95));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_lapses_although_the_clock_has_stepped_back() {
    let (store, clock) = manual_store();
    let limiter = Limiter::new(store, tokens(FixedWindow::per_hour(3)));
    let reserved = reserve(&limiter, 3).await;
    let hour = Duration::from_secs(3_600);
    clock.set_us(clock.now_us() - 2 * 3_600_000_000);
    assert!(!limiter.check_now("ann").expect("a decision").is_allowed());
    clock.advance(3 * LIFETIME);
    let charged = limiter.check_now("ann").expect("a decision");
    assert!(charged.retry_after() > Some(hour / 2), "{charged:?}");
    clock.advance(hour);
    assert!(limiter.check_now("ann").expect("a decision").is_allowed());
    drop(reserved);
}
