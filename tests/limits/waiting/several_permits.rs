//! Callers that wait for permits of several policies.

use tokio::time::{Instant, sleep};

use crate::support::prelude::*;

/// Returns a limiter of policies a and b, and one of b alone, on the same store.
fn limiters(a: u64, b: u64) -> (Limiter, Limiter) {
    let store = paused_store();
    let (a, b) = (Concurrency::new(a), Concurrency::new(b));
    let both = [Policy::new("a", a), Policy::new("b", b)];
    let only_b = Limiter::new(store.clone(), Policy::new("b", b));
    (limiter_of(store, both), only_b)
}

async fn hold(limiter: &Limiter, units: u64) -> Permit {
    let permit = limiter.acquire_n("ann", units, ms(0)).await.unwrap();
    assert!(permit.is_allowed());
    permit
}

#[tokio::test(start_paused = true)]
async fn a_waiter_changes_queues_when_another_policy_denies_it() {
    let (both, only_b) = limiters(1, 2);
    let (first, second) = (hold(&both, 1).await, hold(&only_b, 1).await);
    let waiter = tokio::spawn(come(&both, ms(20_000)));
    sleep(ms(2_200)).await;
    drop(first);
    // Another caller takes the unit of b first.
    let _third = hold(&only_b, 1).await;
    sleep(ms(30)).await;
    let released = Instant::now();
    drop(second);
    assert!(waiter.await.unwrap().unwrap().is_allowed());
    assert!(released.elapsed() <= ms(1), "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_not_delayed_by_one_that_another_policy_denies() {
    let (both, only_b) = limiters(10, 20);
    let _kept = hold(&both, 8).await;
    let (first, second) = (hold(&both, 2).await, hold(&only_b, 9).await);
    let limiter = both.clone();
    let big = tokio::spawn(async move { limiter.acquire_n("ann", 10, ms(60_000)).await });
    sleep(ms(50)).await;
    let small = tokio::spawn(come(&both, ms(8_000)));
    sleep(ms(50)).await;
    drop(first);
    let third = hold(&only_b, 3).await;
    sleep(ms(30)).await;
    let released = Instant::now();
    drop((second, third));
    assert!(small.await.unwrap().unwrap().is_allowed());
    assert!(released.elapsed() <= ms(1), "{:?}", released.elapsed());
    big.abort();
}
