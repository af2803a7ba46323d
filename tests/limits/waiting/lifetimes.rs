//! Permits live as long as they are held, and no longer than their lifetime if they are not
//! renewed.

use tokio::time::sleep;

use crate::support::prelude::*;

const LIFETIME: Duration = ms(300);

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_for_many_lifetimes() {
    let limiter = Limiter::new(paused_store(), Concurrency::new(1).lifetime(LIFETIME));
    let permit = limiter.acquire("ann", ms(0)).await.unwrap();
    for _ in 0..1_000 {
        sleep(ms(3)).await;
        assert_eq!(left(&limiter, "ann").await, 0);
    }
    drop(permit);
    assert_eq!(left(&limiter, "ann").await, 1);
    sleep(10 * LIFETIME).await;
    assert_eq!(left(&limiter, "ann").await, 1);
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0, "a permit is still renewed");
}

/// The permit is held while its owner waits for a token, too.
#[tokio::test(start_paused = true)]
async fn a_permit_is_renewed_while_its_owner_waits() {
    let store = paused_store();
    let few = || Policy::new("few", Concurrency::new(1).lifetime(LIFETIME));
    let bucket = Policy::new("bucket", TokenBucket::per_second(1).burst(1));
    let limiter = limiter_of(store.clone(), [few(), bucket]);
    let looking = Limiter::new(store, few());
    drop(limiter.acquire("ann", ms(0)).await.unwrap());
    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("ann", ms(2_000)).await.unwrap() }
    });
    for _ in 0..99 {
        sleep(ms(10)).await;
        assert_eq!(left(&looking, "ann").await, 0);
    }
    let permit = waits.await.unwrap();
    assert!(permit.is_allowed());
    sleep(10 * LIFETIME).await;
    assert_eq!(left(&looking, "ann").await, 0);
    drop(permit);
    assert_eq!(left(&looking, "ann").await, 1);
}

#[tokio::test]
async fn permits_of_a_dead_runtime_return_after_the_lifetime() {
    // Another runtime has a paused time of its own.
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policy = || Concurrency::new(2).lifetime(LIFETIME);
    let other = store.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let limiter = Limiter::new(other, policy());
        let permit = runtime.block_on(limiter.acquire("ann", ms(0))).unwrap();
        assert!(permit.is_allowed());
        std::mem::forget(permit);
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    let limiter = Limiter::new(store, policy());
    assert_eq!(left(&limiter, "ann").await, 1);
    clock.advance(LIFETIME - ms(1));
    assert_eq!(left(&limiter, "ann").await, 1);
    clock.advance(ms(1));
    assert_eq!(left(&limiter, "ann").await, 2);
}

/// A permit that is released well before the bound is granted, whatever the bound is.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_permit_until_its_time_ends() {
    for bound in [5, 9, 20, 50, 69, 100, 149, 150, 400, 1_000] {
        let limiter = Limiter::new(paused_store(), Concurrency::new(1));
        let permit = limiter.acquire("ann", ms(0)).await.unwrap();
        let waits = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire("ann", ms(bound)).await.unwrap() }
        });
        sleep(ms(bound - bound / 5 - 1)).await;
        drop(permit);
        let started = tokio::time::Instant::now();
        let is_allowed = waits.await.unwrap().is_allowed();
        assert!(
            is_allowed,
            "may wait {bound} ms, the permit came back after {} ms, denied {:?} later",
            bound - bound / 5 - 1,
            started.elapsed()
        );
    }
}

/// No release would help, so the caller is denied at once.
#[tokio::test(start_paused = true)]
async fn no_caller_waits_for_a_permit_while_another_policy_denies_for_long() {
    let policies = [
        Policy::new("few", Concurrency::new(1)),
        Policy::new("day", FixedWindow::per_day(1)),
    ];
    let limiter = limiter_of(paused_store(), policies);
    let _held = limiter.acquire("ann", ms(0)).await.unwrap();
    let started = tokio::time::Instant::now();
    let denied = limiter.acquire("ann", ms(5_000)).await.unwrap();
    assert!(!denied.is_allowed());
    assert!(denied.decision().retry_after().unwrap() > ms(5_000));
    assert_eq!(started.elapsed(), ms(0), "no room for a day, and it waited");
}

/// The process was paused for one policy's lifetime, but not for the other's.
#[tokio::test(start_paused = true)]
async fn losing_a_short_permit_does_not_lose_a_long_one() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let long = || Policy::new("long", Concurrency::new(1).lifetime(ms(30_000)));
    let policies = [
        Policy::new("short", Concurrency::new(1).lifetime(LIFETIME)),
        long(),
    ];
    let limiter = limiter_of(store.clone(), policies);
    let looking = Limiter::new(store, long());
    let permit = limiter.acquire("ann", ms(0)).await.unwrap();
    assert!(permit.is_allowed());
    clock.advance(2 * LIFETIME);
    // From now on everything works, for longer than the long lifetime.
    for _ in 0..400 {
        sleep(ms(100)).await;
        clock.advance(ms(100));
    }
    assert_eq!(left(&looking, "ann").await, 0, "lost although it was held");
    drop(permit);
    assert_eq!(left(&looking, "ann").await, 1);
}
