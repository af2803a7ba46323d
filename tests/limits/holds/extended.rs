//! Holds that outlive a lifetime.

use tokio::runtime::Builder;

use super::{Fate, LIFETIME, Watched, day, limiter, pass, remaining};
use crate::support::prelude::*;

/// A stream of ten minutes, of a policy that holds for two seconds.
#[tokio::test(start_paused = true)]
async fn a_hold_that_lasts_is_never_charged_twice_and_never_released() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    for second in 0..600 {
        pass(Duration::from_secs(1)).await;
        assert_eq!(remaining(&limiter).await, 60, "after {second} s");
    }
    // Once in each lifetime: a stream is no load.
    let extended = store.calls(Operation::Renew);
    assert!((200..=300).contains(&extended), "{extended} calls");
    let settled = reserved.settle(10).await.expect("a settlement");
    assert_eq!(settled.charged(), 10);
    assert_eq!(remaining(&limiter).await, 90);
    let settlements = limiter.metrics().store.settlements;
    assert_eq!((settlements.partial, settlements.total()), (1, 1));
    pass(LIFETIME * 4).await;
    assert_eq!(remaining(&limiter).await, 90);
    assert_eq!(store.calls(Operation::Renew), extended);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_ends_in_time_is_not_extended() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    for _ in 0..100 {
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        pass(LIFETIME / 2).await;
        reserved.settle(0).await.expect("a settlement");
    }
    assert_eq!(store.calls(Operation::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn all_holds_of_a_bucket_are_extended_by_one_call() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(limiter.reserve("ann", 1).await.expect("a decision"));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    for key in ["bob", "eve"] {
        held.push(limiter.reserve(key, 1).await.expect("a decision"));
    }
    pass(LIFETIME * 3 / 2).await;
    assert_eq!(store.calls(Operation::Renew), 3, "one for each caller");
    pass(LIFETIME).await;
    assert_eq!(store.calls(Operation::Renew), 6);
    assert_eq!(remaining(&limiter).await, 70);
    drop(held);
    pass(LIFETIME * 2).await;
    assert_eq!(store.calls(Operation::Renew), 6);
    assert_eq!(remaining(&limiter).await, 70);
    assert_eq!(limiter.metrics().store.settlements.charged, 32);
}

/// The holds of a caller that began in different generations.
#[tokio::test(start_paused = true)]
async fn holds_that_began_at_different_times_are_kept_apart_and_extended() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(limiter.reserve("ann", 2).await.expect("a decision"));
        pass(LIFETIME / 4).await;
    }
    assert_eq!(remaining(&limiter).await, 60);
    pass(LIFETIME * 20).await;
    assert_eq!(remaining(&limiter).await, 60);
    for reserved in held {
        reserved.settle(1).await.expect("a settlement");
    }
    assert_eq!(remaining(&limiter).await, 80);
    assert_eq!(limiter.metrics().store.settlements.partial, 20);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_waits_for_an_extension_that_is_under_way() {
    let store = Watched::new();
    let limiter = limiter(&store, day());
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    let dropped = limiter.reserve("ann", 20).await.expect("a decision");
    store.set(Operation::Renew, Some(Fate::Late));
    while store.calls(Operation::Renew) == 0 {
        pass(Duration::from_millis(50)).await;
    }
    drop(dropped);
    let settling = tokio::spawn(reserved.settle(10));
    pass(Duration::from_millis(100)).await;
    assert!(!settling.is_finished());
    assert_eq!(store.calls(Operation::Settle), 0);
    assert_eq!(remaining(&limiter).await, 40);
    pass(super::LATE).await;
    let settled = settling.await.expect("a task").expect("a settlement");
    assert_eq!(settled.charged(), 10);
    assert_eq!(store.calls(Operation::Settle), 2);
    assert_eq!(remaining(&limiter).await, 70);
    pass(LIFETIME * 4).await;
    assert_eq!(remaining(&limiter).await, 70);
    let settlements = limiter.metrics().store.settlements;
    assert_eq!((settlements.partial, settlements.charged), (1, 1));
}

/// Whether such a call ran is unknown. So it is made again, and units that it moved stay where they
/// are.
#[tokio::test(start_paused = true)]
async fn an_extension_without_a_reply_is_repeated_and_costs_nothing() {
    for fate in [Fate::Lost, Fate::Unanswered] {
        for used in [0, 30, 55] {
            let store = Watched::new();
            let limiter = limiter(&store, day());
            let reserved = limiter.reserve("ann", 40).await.expect("a decision");
            // One call extends both.
            let beside = limiter.reserve("ann", 10).await.expect("a decision");
            store.set(Operation::Renew, Some(fate));
            while store.calls(Operation::Renew) < 3 {
                pass(Duration::from_millis(50)).await;
            }
            store.set(Operation::Renew, None);
            let settled = reserved.settle(used).await.expect("a settlement");
            assert_eq!(settled.charged(), used, "{fate:?}");
            pass(LIFETIME * 4).await;
            assert_eq!(remaining(&limiter).await, 90 - used, "{fate:?}, {used}");
            beside.release().await.expect("a settlement");
            assert_eq!(remaining(&limiter).await, 100 - used, "{fate:?}, {used}");
            assert_eq!(limiter.metrics().store.settlements.lost, 0);
        }
    }
}

/// Then what is held is charged when it lapses, and a settlement only charges what exceeds it.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_extensions_are_all_lost_is_charged_once() {
    for fate in [Fate::Lost, Fate::Unanswered] {
        for (used, charged) in [(0, 40), (30, 40), (55, 55)] {
            let store = Watched::new();
            let limiter = limiter(&store, day());
            let reserved = limiter.reserve("ann", 40).await.expect("a decision");
            store.set(Operation::Renew, Some(fate));
            while store.calls(Operation::Renew) == 0 {
                pass(Duration::from_millis(50)).await;
            }
            let settling = tokio::spawn(reserved.settle(used));
            pass(LIFETIME * 4).await;
            let settled = settling.await.expect("a task");
            assert_eq!(settled.is_ok(), used > 40, "{fate:?}, {used}");
            assert_eq!(remaining(&limiter).await, 100 - charged, "{fate:?}, {used}");
            assert!(store.calls(Operation::Renew) > 2, "{fate:?}, {used}");
            assert_eq!(store.calls(Operation::Settle), usize::from(used > 40));
        }
    }
}

/// A process that stalls does not extend in time.
#[tokio::test(start_paused = true)]
async fn a_hold_that_lapsed_is_charged_in_full_and_settled_with_what_exceeds_it() {
    for (used, charged) in [(0, 40), (30, 40), (55, 55)] {
        let store = Watched::new();
        let limiter = limiter(&store, day());
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        // No task runs meanwhile.
        tokio::time::advance(LIFETIME * 2).await;
        reserved.settle(used).await.expect("a settlement");
        assert_eq!(remaining(&limiter).await, 100 - charged, "{used}");
        pass(LIFETIME * 4).await;
        assert_eq!(remaining(&limiter).await, 100 - charged, "{used}");
        assert_eq!(limiter.metrics().store.settlements.late, 1, "{used}");
    }
}

/// The runtime that extends may end before its holds do.
#[test]
fn another_runtime_extends_what_its_own_no_longer_can() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    let limiter = &Limiter::new(store, Policy::new("tokens", day()).hold_for(LIFETIME));
    let runtime = || {
        let mut builder = Builder::new_current_thread();
        let builder = builder.enable_time().start_paused(true);
        builder.build().expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    // The first starts the task.
    let in_first = first.block_on(limiter.reserve("ann", 10));
    let in_second = second.block_on(limiter.reserve("ann", 20));
    drop(first);
    second.block_on(async {
        for _ in 0..LIFETIME.as_millis() / 10 {
            clock.advance(Duration::from_millis(50));
            pass(Duration::from_millis(50)).await;
        }
        let in_second = in_second.expect("a decision");
        in_second.settle(0).await.expect("a settlement");
        // What the first held is extended, too.
        in_first
            .expect("a decision")
            .settle(0)
            .await
            .expect("a settlement");
        assert_eq!(remaining(limiter).await, 100);
    });
}
