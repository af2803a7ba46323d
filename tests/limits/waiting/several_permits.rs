//! Callers that wait for permits of several policies.

use tokio::time::{Instant, sleep};

use crate::support::prelude::*;

/// Returns a limiter of policies a and b, and one of b alone, on the same store.
fn limiters(a: u64, b: u64) -> (Limiter, Limiter) {
    let store = paused_store();
    let b = || Policy::new("b", Concurrency::new(b));
    let both = Limiter::builder().store(store.clone());
    let both = both
        .policy(Policy::new("a", Concurrency::new(a)))
        .policy(b());
    let only_b = Limiter::builder().store(store).policy(b());
    (both.build().unwrap(), only_b.build().unwrap())
}

async fn hold(limiter: &Limiter, units: u64) -> Permit {
    let permit = limiter.acquire_n("ann", units, ms(0)).await.unwrap();
    assert!(permit.is_allowed());
    permit
}

/// Waits in a task of its own. Returns when the caller was admitted.
fn wait(limiter: &Limiter, units: u64, wait: Duration) -> tokio::task::JoinHandle<Instant> {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        let permit = limiter.acquire_n("ann", units, wait).await.unwrap();
        assert!(permit.is_allowed());
        Instant::now()
    })
}

#[tokio::test(start_paused = true)]
async fn a_waiter_changes_queues_when_another_policy_denies_it() {
    let (both, only_b) = limiters(1, 2);
    let (first, second) = (hold(&both, 1).await, hold(&only_b, 1).await);
    let waiter = wait(&both, 1, ms(20_000));
    sleep(ms(2_200)).await;
    drop(first);
    // Another caller takes the unit of b first.
    let third = hold(&only_b, 1).await;
    sleep(ms(30)).await;
    let released = Instant::now();
    drop(second);
    let admitted = waiter.await.unwrap();
    assert!(admitted - released <= ms(1), "{:?}", admitted - released);
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_not_delayed_by_one_that_another_policy_denies() {
    let (both, only_b) = limiters(10, 20);
    let _kept = hold(&both, 8).await;
    let (first, second) = (hold(&both, 2).await, hold(&only_b, 9).await);
    let big = wait(&both, 10, ms(60_000));
    sleep(ms(50)).await;
    let small = wait(&both, 1, ms(8_000));
    sleep(ms(50)).await;
    drop(first);
    let third = hold(&only_b, 3).await;
    sleep(ms(30)).await;
    let released = Instant::now();
    drop((second, third));
    let admitted = small.await.unwrap();
    assert!(admitted - released <= ms(1), "{:?}", admitted - released);
    big.abort();
}
