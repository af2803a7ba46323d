//! Holds that outlive a lifetime.

use tokio::{runtime::Builder, time::advance};

use super::{
    Fate, LATE, LIFETIME, Watched, day, limiter, pass, remaining, reserve, settle, tokens,
    until_calls,
};
use crate::support::prelude::*;

/// A stream of ten minutes, of a policy that holds for two seconds.
#[tokio::test(start_paused = true)]
async fn a_hold_that_lasts_is_never_charged_twice_and_never_released() {
    let store = Watched::new();
    let limiter = limiter(&store);
    let reserved = reserve(&limiter, 40).await;
    for second in 0..600 {
        pass(ms(1_000)).await;
        assert_eq!(remaining(&limiter).await, 60, "after {second} s");
    }
    // Once in each lifetime: a stream is no load.
    let extended = store.calls(Operation::Renew);
    assert!((200..=300).contains(&extended), "{extended} calls");
    assert_eq!(settle(reserved, 10).await, (10, 0));
    assert_eq!(remaining(&limiter).await, 90);
    let settlements = limiter.metrics().store.settlements;
    assert_eq!((settlements.partial, settlements.total()), (1, 1));
    // One that ends in time is not extended.
    for _ in 0..100 {
        let reserved = reserve(&limiter, 40).await;
        pass(LIFETIME / 2).await;
        settle(reserved, 0).await;
    }
    assert_eq!(remaining(&limiter).await, 90);
    assert_eq!(store.calls(Operation::Renew), extended);
}

#[tokio::test(start_paused = true)]
async fn all_holds_of_a_bucket_are_extended_by_one_call() {
    let store = Watched::new();
    let limiter = limiter(&store);
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(reserve(&limiter, 1).await);
        advance(ms(10)).await;
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

#[tokio::test(start_paused = true)]
async fn a_settlement_waits_for_an_extension_that_is_under_way() {
    let store = Watched::new();
    let limiter = limiter(&store);
    let reserved = reserve(&limiter, 40).await;
    let dropped = reserve(&limiter, 20).await;
    store.set(Operation::Renew, Some(Fate::Late));
    until_calls(&store, Operation::Renew, 1).await;
    drop(dropped);
    let settling = tokio::spawn(settle(reserved, 10));
    pass(ms(100)).await;
    assert!(!settling.is_finished());
    assert_eq!(store.calls(Operation::Settle), 0);
    assert_eq!(remaining(&limiter).await, 40);
    pass(LATE).await;
    assert_eq!(settling.await.expect("a task"), (10, 0));
    assert_eq!(store.calls(Operation::Settle), 2);
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
            let limiter = limiter(&store);
            // One call extends both.
            let reserved = reserve(&limiter, 40).await;
            let beside = reserve(&limiter, 10).await;
            store.set(Operation::Renew, Some(fate));
            until_calls(&store, Operation::Renew, 3).await;
            store.set(Operation::Renew, None);
            assert_eq!(settle(reserved, used).await.0, used, "{fate:?}");
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
            let limiter = limiter(&store);
            let reserved = reserve(&limiter, 40).await;
            store.set(Operation::Renew, Some(fate));
            until_calls(&store, Operation::Renew, 1).await;
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
        let limiter = limiter(&Watched::new());
        let reserved = reserve(&limiter, 40).await;
        // No task runs meanwhile.
        advance(LIFETIME * 2).await;
        settle(reserved, used).await;
        assert_eq!(remaining(&limiter).await, 100 - charged, "{used}");
        pass(LIFETIME * 4).await;
        assert_eq!(remaining(&limiter).await, 100 - charged, "{used}");
        assert_eq!(limiter.metrics().store.settlements.late, 1, "{used}");
    }
}

/// The runtime that extends may end before its holds do.
#[test]
fn another_runtime_extends_what_its_own_no_longer_can() {
    let (store, clock) = manual_store();
    let limiter = &Limiter::new(store, tokens(day()));
    let runtime = || {
        let mut builder = Builder::new_current_thread();
        let builder = builder.enable_time().start_paused(true);
        builder.build().expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    // The first starts the task.
    let in_first = first.block_on(reserve(limiter, 10));
    let in_second = second.block_on(reserve(limiter, 20));
    drop(first);
    second.block_on(async {
        for _ in 0..LIFETIME.as_millis() / 10 {
            clock.advance(ms(50));
            pass(ms(50)).await;
        }
        settle(in_second, 0).await;
        // What the first held is extended, too.
        settle(in_first, 0).await;
        assert_eq!(remaining(limiter).await, 100);
    });
}
