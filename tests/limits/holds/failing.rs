//! Holds while the store fails.

use tower_throttle::metrics::Settlements;

use super::{
    Fate, LATE, LIFETIME, Watched, day, limiter, pass, remaining, reserve, settle, tokens,
};
use crate::support::prelude::*;

/// Whether such a call ran is unknown, so it is not made again.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_lost_is_not_sent_again_and_charges_once() {
    for (fate, expected) in [(Fate::Lost, 60), (Fate::Unanswered, 90)] {
        let store = Watched::new();
        let limiter = limiter(&store);
        let reserved = reserve(&limiter, 40).await;
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

/// Each process has a share of the quota, and holds of that.
#[tokio::test(start_paused = true)]
async fn what_is_held_locally_is_settled_and_extended_locally() {
    for share in [1, 2] {
        let store = Watched::new();
        let share_of = OnStoreFailure::share_of(share);
        let policy = tokens(day()).on_store_failure(share_of);
        let limiter = Limiter::new(Arc::clone(&store), policy);
        for operation in [Operation::Take, Operation::Peek] {
            store.set(operation, Some(Fate::Lost));
        }
        let part = 100 / u64::from(share);
        let reserved = reserve(&limiter, 30).await;
        let dropped = reserve(&limiter, 20).await;
        assert_eq!(reserved.decision().source(), Source::Local);
        assert!(!reserve(&limiter, part - 49).await.is_allowed());
        // The local buckets have the machine's clock.
        for second in 0..3 {
            tokio::time::advance(LIFETIME / 3).await;
            assert_eq!(remaining(&limiter).await, part - 50, "{second}");
        }
        let settled = reserved.settle(10).await.expect("a settlement");
        assert_eq!(settled.decision().source(), Source::Local);
        drop(dropped);
        assert_eq!(remaining(&limiter).await, part - 30);
        assert_eq!(store.calls(Operation::Settle), 0);
        assert_eq!(store.calls(Operation::Renew), 0);
        let seen = limiter.metrics().store;
        assert_eq!((seen.settlements.total(), seen.unsettled_units), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_allows_while_the_store_fails_holds_nothing() {
    let store = Watched::new();
    let policy = tokens(day()).on_store_failure(OnStoreFailure::Allow);
    let limiter = Limiter::new(Arc::clone(&store), policy);
    store.set(Operation::Take, Some(Fate::Lost));
    let reserved = reserve(&limiter, 40).await;
    assert!(reserved.is_allowed());
    assert_eq!(reserved.decision().source(), Source::StoreFailure);
    settle(reserved, 10).await;
    assert_eq!(store.calls(Operation::Settle), 0);
    assert_eq!(remaining(&limiter).await, 100);
}

/// If a shadow check failed, what it holds is unknown, so nothing is settled. The hold of one that
/// is late is settled when the store has answered.
#[tokio::test(start_paused = true)]
async fn a_settlement_waits_for_a_shadow_check_and_ends_with_it() {
    let store = Watched::new();
    let limiter = Limiter::new(Arc::clone(&store), tokens(day()).shadow());
    for fate in [Fate::Lost, Fate::LateAndLost, Fate::Late] {
        store.set(Operation::Take, Some(fate));
        let reserved = reserve(&limiter, 40).await;
        assert!(reserved.is_allowed());
        let settling = tokio::spawn(reserved.settle(10));
        pass(LATE / 2).await;
        assert_eq!(settling.is_finished(), fate == Fate::Lost, "{fate:?}");
        pass(LATE).await;
        let settled = settling.await.expect("a task").expect("a settlement");
        let expected = usize::from(fate == Fate::Late);
        assert_eq!(settled.charged() / 10, expected as u64, "{fate:?}");
        assert_eq!(store.calls(Operation::Settle), expected, "{fate:?}");
    }
    let decision = peek(&limiter, "ann").await;
    let policy = decision.shadow_policies().next().expect("a policy");
    assert_eq!(policy.remaining(), 90);
}
