//! The rules of one penalty.

use super::{check, check_of, doubling, is_banned, limiter, minutes, strikes_left};
use crate::support::prelude::*;

#[tokio::test]
async fn each_ban_is_twice_as_long_up_to_the_longest_and_one_peace_forgives() {
    let (clock, limiter) = limiter(doubling());
    for minutes_of_ban in [5, 10, 20, 30, 30] {
        let _ = limiter.strike("ann", 3).await.expect("strikes");
        let banned = check(&limiter).await;
        assert_eq!(banned.retry_after(), Some(minutes(minutes_of_ban)));
        clock.advance(minutes(minutes_of_ban) - Duration::from_micros(1));
        assert!(is_banned(&check(&limiter).await));
        clock.advance(Duration::from_micros(1));
        assert_eq!(
            strikes_left(&check(&limiter).await),
            3,
            "all strikes are gone"
        );
    }
    clock.advance(minutes(60) - Duration::from_millis(1));
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(30)));
    clock.advance(minutes(30 + 60));
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(5)));
}

#[tokio::test]
async fn a_ban_by_hand_is_at_least_a_millisecond_and_at_most_until_2286() {
    let (clock, limiter) = limiter(doubling());
    limiter.ban("ann", Duration::ZERO).await.expect("a ban");
    let wait = check(&limiter).await.retry_after().expect("a wait");
    assert!(wait <= Duration::from_millis(1), "{wait:?}");
    clock.advance(wait);
    assert!(check(&limiter).await.is_allowed());
    limiter.ban("ann", Duration::MAX).await.expect("a ban");
    let wait = check(&limiter).await.retry_after().expect("a wait");
    let years = wait.as_secs() / (365 * 86_400);
    assert!((255..265).contains(&years), "{wait:?}");
}

#[tokio::test]
async fn a_reset_lifts_a_ban_and_forgets_strikes_and_bans() {
    let (clock, limiter) = limiter(doubling());
    for _ in 0..2 {
        let _ = limiter.strike("ann", 3).await.expect("strikes");
        clock.advance(minutes(10));
    }
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(20)));
    limiter.reset("ann").await.expect("a reset");
    assert_eq!(strikes_left(&check(&limiter).await), 3);
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    limiter.reset("ann").await.expect("a reset");
    assert_eq!(strikes_left(&check(&limiter).await), 3);
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(5)));
}

#[tokio::test]
async fn callers_without_strikes_have_no_bucket() {
    let (store, _) = manual_store();
    let limiter = Limiter::new(store.clone(), doubling());
    for caller in 0..1_000_u64 {
        assert!(check_of(&limiter, caller).await.is_allowed());
        assert!(limiter.peek(caller).await.expect("a decision").is_allowed());
    }
    assert_eq!(store.len(), 0);
    let _ = limiter.strike("ann", 1).await.expect("a strike");
    assert_eq!(store.len(), 1);
}

/// No new caller is banned for what others did, and a ban by hand always holds.
#[tokio::test]
async fn a_full_memory_store_bans_nobody_for_the_strikes_of_others() {
    let store = MemoryStore::builder().capacity(4).build();
    let limiter = Limiter::new(store, Policy::new("bans", Penalty::after(2)));
    for caller in 0..4_u64 {
        let _ = limiter.strike(caller, 2).await.expect("strikes");
    }
    for caller in 4..200_u64 {
        let strike = limiter.strike(caller, 2).await.expect("no strikes");
        assert_eq!(strike.charged(), 0);
    }
    for caller in 0..200_u64 {
        let decision = limiter.check(caller).await.expect("a decision");
        assert_eq!(decision.is_allowed(), caller >= 4, "caller {caller}");
    }
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    assert!(!check(&limiter).await.is_allowed());
}

#[tokio::test]
async fn other_numbers_end_no_ban_and_start_none() {
    let (store, clock) = manual_store();
    let of = |penalty| Limiter::new(store.clone(), Policy::new("bans", penalty));
    let (long, short) = (of(doubling()), of(Penalty::after(1).lasting(minutes(1))));
    let _ = long.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&short).await.retry_after(), Some(minutes(5)));
    let _ = long.strike("bob", 2).await.expect("strikes");
    // One strike is a ban now: the next one.
    assert!(check_of(&short, "bob").await.is_allowed());
    let _ = short.strike("bob", 1).await.expect("a strike");
    clock.advance(Duration::from_secs(59));
    assert!(!check_of(&short, "bob").await.is_allowed());
}
