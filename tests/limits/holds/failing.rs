//! Holds while the store fails.

use tower_throttle::metrics::Settlements;

use super::{Fate, LIFETIME, Watched, day, limiter, pass, remaining};
use crate::support::prelude::*;

/// Whether such a call ran is unknown, so it is not made again.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_lost_is_not_sent_again_and_charges_once() {
    for (fate, expected) in [(Fate::Lost, 60), (Fate::Unanswered, 90)] {
        let store = Watched::new();
        let limiter = limiter(&store, day());
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        store.set(Operation::Settle, Some(fate));
        let error = reserved.settle(10).await.expect_err("a lost answer");
        assert!(error.is_unavailable());
        store.set(Operation::Settle, None);
        pass(LIFETIME * 4).await;
        assert_eq!(remaining(&limiter).await, expected, "{fate:?}");
        assert_eq!(store.calls(Operation::Settle), 1);
        let mut settlements = Settlements::default();
        settlements.lost = 1;
        assert_eq!(limiter.metrics().store.settlements, settlements);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_locally_is_settled_and_extended_locally() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    for operation in [Operation::Take, Operation::Peek] {
        store.set(operation, Some(Fate::Lost));
    }
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    let dropped = limiter.reserve("ann", 20).await.expect("a decision");
    assert_eq!(reserved.decision().source(), Source::Local);
    assert_eq!(remaining(&limiter).await, 40);
    // The local buckets have the machine's clock.
    for second in 0..3 {
        tokio::time::advance(LIFETIME / 3).await;
        assert_eq!(remaining(&limiter).await, 40, "{second}");
    }
    let settled = reserved.settle(10).await.expect("a settlement");
    assert_eq!(settled.decision().source(), Source::Local);
    drop(dropped);
    assert_eq!(remaining(&limiter).await, 70);
    assert_eq!(store.calls(Operation::Settle), 0);
    assert_eq!(store.calls(Operation::Renew), 0);
    let seen = limiter.metrics().store;
    assert_eq!((seen.settlements.total(), seen.unsettled_units), (2, 0));
}

/// Each process has a share of the quota, and holds of that.
#[tokio::test(start_paused = true)]
async fn a_share_is_held_and_settled() {
    let store = Watched::new();
    let policy = Policy::new("tokens", day())
        .hold_for(LIFETIME)
        .on_store_failure(OnStoreFailure::share_of(4));
    let limiter = Limiter::new(Arc::clone(&store), policy);
    for operation in [Operation::Take, Operation::Peek] {
        store.set(operation, Some(Fate::Lost));
    }
    let reserved = limiter.reserve("ann", 20).await.expect("a decision");
    assert!(reserved.is_allowed());
    let beyond = limiter.reserve("ann", 20).await.expect("a decision");
    assert!(!beyond.is_allowed());
    reserved.settle(5).await.expect("a settlement");
    assert_eq!(remaining(&limiter).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_allows_while_the_store_fails_holds_nothing() {
    let store = Watched::new();
    let policy = Policy::new("tokens", day())
        .hold_for(LIFETIME)
        .on_store_failure(OnStoreFailure::Allow);
    let limiter = Limiter::new(Arc::clone(&store), policy);
    store.set(Operation::Take, Some(Fate::Lost));
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    assert!(reserved.is_allowed());
    assert_eq!(reserved.decision().source(), Source::StoreFailure);
    reserved.settle(10).await.expect("nothing to settle");
    assert_eq!(store.calls(Operation::Settle), 0);
    assert_eq!(remaining(&limiter).await, 100);
}

/// What it holds is unknown then, so nothing is settled.
#[tokio::test(start_paused = true)]
async fn a_settlement_does_not_wait_for_a_shadow_check_that_failed() {
    let store = Watched::new();
    let policy = Policy::new("tokens", day()).hold_for(LIFETIME).shadow();
    let limiter = Limiter::new(Arc::clone(&store), policy);
    for fate in [Fate::Lost, Fate::LateAndLost] {
        store.set(Operation::Take, Some(fate));
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        assert!(reserved.is_allowed());
        let settling = tokio::spawn(reserved.settle(10));
        pass(super::LATE * 2).await;
        assert!(settling.is_finished(), "{fate:?}");
        let settled = settling.await.expect("a task").expect("nothing to settle");
        assert_eq!(settled.decision().policies().len(), 0);
    }
    assert_eq!(store.calls(Operation::Settle), 0);
}

/// Its hold is settled when the store has answered.
#[tokio::test(start_paused = true)]
async fn a_settlement_waits_for_a_shadow_check_that_is_late() {
    let store = Watched::new();
    let policy = Policy::new("tokens", day()).hold_for(LIFETIME).shadow();
    let limiter = Limiter::new(Arc::clone(&store), policy);
    store.set(Operation::Take, Some(Fate::Late));
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    let settling = tokio::spawn(reserved.settle(10));
    pass(super::LATE / 2).await;
    assert!(!settling.is_finished());
    pass(super::LATE).await;
    let settled = settling.await.expect("a task").expect("a settlement");
    assert_eq!(settled.charged(), 10);
    let decision = limiter.peek("ann").await.expect("a decision");
    let left = decision
        .shadow_policies()
        .next()
        .expect("a policy")
        .remaining();
    assert_eq!((left, store.calls(Operation::Settle)), (90, 1));
}

/// A caller that leaves takes nothing, although its check is under way.
#[tokio::test(start_paused = true)]
async fn a_reservation_whose_future_is_dropped_holds_nothing() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    store.set(Operation::Take, Some(Fate::Late));
    let reserving = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.reserve("ann", 40).await.map(drop) }
    });
    while store.calls(Operation::Take) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(remaining(&limiter).await, 60);
    reserving.abort();
    pass(super::LATE * 2).await;
    assert_eq!(remaining(&limiter).await, 100);
    assert_eq!(store.calls(Operation::Refund), 1);
}
