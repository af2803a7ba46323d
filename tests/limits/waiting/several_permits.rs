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

/// It stands in the queue of the policy that denies it, and in no other.
#[tokio::test(start_paused = true)]
async fn a_waiter_delays_only_callers_of_the_policy_that_denies_it() {
    let store = paused_store();
    let (a, b) = (Concurrency::new(10), Concurrency::new(20));
    let both = [Policy::new("a", a), Policy::new("b", b)];
    let only = |name, quota| Limiter::new(store.clone(), Policy::new(name, quota));
    let (only_a, only_b) = (only("a", a), only("b", b));
    let both = limiter_of(store.clone(), both);
    let kept = hold(&only_b, 15).await;
    let limiter = both.clone();
    let large = tokio::spawn(async move { limiter.acquire_n("ann", 10, ms(60_000)).await });
    sleep(ms(50)).await;
    let free = hold(&only_a, 10).await;
    drop(free);
    let small = tokio::spawn(come(&only_b, ms(8_000)));
    let smaller = tokio::spawn(come(&both, ms(8_000)));
    sleep(ms(50)).await;
    assert!(!small.is_finished() && !smaller.is_finished());
    let left = Instant::now();
    large.abort();
    assert!(small.await.unwrap().unwrap().is_allowed());
    assert!(smaller.await.unwrap().unwrap().is_allowed());
    assert_eq!(left.elapsed(), ms(0));
    drop(kept);
}
