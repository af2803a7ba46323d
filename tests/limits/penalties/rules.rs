//! What the walks of the model do not see: edges, waiting, and what memory keeps.

use super::{ban, doubling, is_banned, limiter, minutes, strike, strikes_left};
use crate::{stores::paused_stores, support::prelude::*};

#[tokio::test]
async fn a_ban_by_hand_is_at_least_a_millisecond_and_at_most_until_2286() {
    let (clock, limiter) = limiter(doubling());
    ban(&limiter, "ann", Duration::ZERO).await;
    let wait = check(&limiter, "ann").await.retry_after().expect("a wait");
    assert!(wait <= ms(1), "{wait:?}");
    clock.advance(wait);
    assert!(check(&limiter, "ann").await.is_allowed());
    ban(&limiter, "ann", Duration::MAX).await;
    let wait = check(&limiter, "ann").await.retry_after().expect("a wait");
    let years = wait.as_secs() / (365 * 86_400);
    assert!((255..265).contains(&years), "{wait:?}");
}

#[tokio::test]
async fn callers_without_strikes_have_no_bucket() {
    let (store, _) = manual_store();
    let limiter = Limiter::new(store.clone(), doubling());
    for caller in 0..1_000_u64 {
        assert!(check(&limiter, caller).await.is_allowed());
        assert!(peek(&limiter, caller).await.is_allowed());
    }
    assert_eq!(store.len(), 0);
    let _ = strike(&limiter, "ann", 1).await;
    assert_eq!(store.len(), 1);
}

/// No new caller is banned for what others did, and a ban by hand always holds.
#[tokio::test]
async fn a_full_memory_store_bans_nobody_for_the_strikes_of_others() {
    let store = MemoryStore::builder().capacity(4).build();
    let limiter = Limiter::new(store, Policy::new("bans", Penalty::after(2)));
    for caller in 0..200_u64 {
        let charged = strike(&limiter, caller, 2).await.charged();
        assert_eq!(charged, if caller < 4 { 2 } else { 0 });
    }
    for caller in 0..200_u64 {
        let is_allowed = check(&limiter, caller).await.is_allowed();
        assert_eq!(is_allowed, caller >= 4, "caller {caller}");
    }
    ban(&limiter, "ann", minutes(1)).await;
    assert!(!check(&limiter, "ann").await.is_allowed());
}

#[tokio::test]
async fn a_banned_caller_never_waits() {
    let held = Policy::new("held", Concurrency::new(1));
    let bans = Policy::new("bans", doubling());
    let limiter = limiter_of(MemoryStore::new(), [bans, held]);
    ban(&limiter, "ann", minutes(1)).await;
    let permit = at_once(acquire(&limiter, "ann", minutes(60)));
    assert!(is_banned(permit.decision()));
}

/// Whatever denied the caller, in memory and on Redis.
#[tokio::test(start_paused = true)]
async fn each_denial_by_another_policy_is_a_strike() {
    let bucket = TokenBucket::per_hour(1);
    for policy in [
        Policy::new("bucket", bucket),
        Policy::new("held", bucket).hold_for(minutes(1)),
        Policy::new("at once", bucket.refill_at_once()),
        Policy::new("by hand", TokenBucket::without_refill(1)),
        Policy::new("leaky", LeakyBucket::per_hour(1).capacity(1)),
        Policy::new("window", FixedWindow::per_hour(1)),
        Policy::new("month", FixedWindow::per_calendar_month(1)),
        Policy::new("sliding", SlidingWindow::per_hour(1)),
        Policy::new("log", SlidingLog::per_hour(1)),
        Policy::new("permit", Concurrency::new(1)),
        Policy::new("pause", Pause),
    ] {
        for store in paused_stores() {
            let bans = Policy::new("bans", Penalty::after(3)).strike_on_denial();
            let limiter = limiter_of(store, [policy.clone(), bans]);
            let first = acquire(&limiter, "ann", Duration::ZERO).await;
            assert!(first.is_allowed(), "{policy:?}");
            if format!("{policy:?}").contains("pause") {
                limiter.pause("ann", minutes(60)).await.expect("a pause");
            }
            for denial in 1..=3 {
                let denied = acquire(&limiter, "ann", Duration::ZERO).await;
                let is_ban = is_banned(denied.decision());
                assert!(!denied.is_allowed(), "{policy:?}");
                assert_eq!(is_ban, denial == 3, "{policy:?}: {denial}");
            }
        }
    }
}

/// It is denied later, or not at all.
#[tokio::test(start_paused = true)]
async fn a_caller_that_may_wait_gets_no_strike() {
    let limiter = limiter_of(MemoryStore::new(), super::striking(Penalty::after(2)));
    assert!(check(&limiter, "ann").await.is_allowed());
    for (wait, left) in [(Duration::from_micros(1), 2), (Duration::ZERO, 1)] {
        assert!(!acquire(&limiter, "ann", wait).await.is_allowed());
        assert_eq!(strikes_left(&peek(&limiter, "ann").await), left);
    }
}
