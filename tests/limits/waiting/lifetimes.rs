//! Permits live as long as they are held, and no longer than their lifetime if they are not
//! renewed.

use tokio::time::{Instant, sleep};

use crate::support::prelude::*;

const LIFETIME: Duration = ms(300);

fn few() -> Policy {
    Policy::new("few", Concurrency::new(1).lifetime(LIFETIME))
}

/// The permit is held while its owner waits for a token, too.
#[tokio::test(start_paused = true)]
async fn a_permit_is_renewed_while_its_owner_waits() {
    let store = paused_store();
    let bucket = Policy::new("bucket", TokenBucket::per_second(1).burst(1));
    let limiter = limiter_of(store.clone(), [few(), bucket]);
    let looking = Limiter::new(store, few());
    drop(acquire(&limiter, "ann", ms(0)).await);
    let waits = tokio::spawn(come(&limiter, ms(2_000)));
    for _ in 0..99 {
        sleep(ms(10)).await;
        assert_eq!(left(&looking, "ann").await, 0);
    }
    let permit = waits.await.unwrap().unwrap();
    assert!(permit.is_allowed());
    drop(permit);
    assert_eq!(left(&looking, "ann").await, 1);
}

/// A permit that is released well before the bound is granted, whatever the bound is.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_permit_until_its_time_ends() {
    for bound in [5, 9, 20, 50, 69, 100, 149, 150, 400, 1_000] {
        let limiter = Limiter::new(paused_store(), Concurrency::new(1));
        let permit = acquire(&limiter, "ann", ms(0)).await;
        let waits = tokio::spawn(come(&limiter, ms(bound)));
        sleep(ms(bound - bound / 5 - 1)).await;
        drop(permit);
        let permit = waits.await.unwrap().unwrap();
        assert!(permit.is_allowed(), "may wait {bound} ms");
    }
}

/// No release would help, so the caller is denied at once.
#[tokio::test(start_paused = true)]
async fn no_caller_waits_for_a_permit_while_another_policy_denies_for_long() {
    let day = Policy::new("day", FixedWindow::per_day(1));
    let limiter = limiter_of(paused_store(), [few(), day]);
    let _held = acquire(&limiter, "ann", ms(0)).await;
    let started = Instant::now();
    let denied = acquire(&limiter, "ann", ms(5_000)).await;
    assert!(!denied.is_allowed());
    assert!(denied.decision().retry_after() > Some(ms(5_000)));
    assert_eq!(started.elapsed(), ms(0), "no room for a day, and it waited");
}

/// The process was paused for one policy's lifetime, but not for the other's.
#[tokio::test(start_paused = true)]
async fn losing_a_short_permit_does_not_lose_a_long_one() {
    let (store, clock) = manual_store();
    let long = || Policy::new("long", Concurrency::new(1).lifetime(ms(30_000)));
    let limiter = limiter_of(store.clone(), [few(), long()]);
    let looking = Limiter::new(store, long());
    let permit = acquire(&limiter, "ann", ms(0)).await;
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
