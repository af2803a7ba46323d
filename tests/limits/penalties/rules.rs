//! The rules of one penalty.

use std::time::Duration;

use tower_throttle::{Limiter, MemoryStore, Penalty, Policy};

use super::{check, doubling, is_banned, limiter, memory, minutes, strikes_left};
use crate::support::random::{Random, seed};

/// Strikes at random: each ban has its strikes within one window, and the last of them started it.
#[tokio::test]
async fn no_caller_is_banned_without_its_strikes_in_one_window() {
    let mut random = Random::from_seed(seed());
    let mut bans = 0;
    for _ in 0..60 {
        let after = random.between(1, 6);
        let window_ms = random.between(1, 5_000);
        let ban_ms = random.between(1, 5_000);
        let penalty = Penalty::after(after)
            .within(Duration::from_millis(window_ms))
            .lasting(Duration::from_millis(ban_ms));
        let (clock, limiter) = limiter(penalty);
        let (mut now_us, mut strikes) = (0_u64, Vec::new());
        for _ in 0..400 {
            let pause = random.bits_up_to(window_ms * 700);
            clock.advance(Duration::from_micros(pause));
            now_us += pause;
            if check(&limiter).await.is_allowed() {
                let _ = limiter.strike("ann", 1).await.expect("a strike");
                strikes.push(now_us);
                if is_banned(&check(&limiter).await) {
                    bans += 1;
                    let first = strikes[strikes.len() - after as usize];
                    assert!(
                        now_us - first <= window_ms * 1_000,
                        "{penalty:?}: {strikes:?}"
                    );
                    strikes.clear();
                }
            } else {
                let _ = limiter.strike("ann", 1).await.expect("no strike");
            }
        }
    }
    assert!(bans > 300, "{bans}");
}

#[tokio::test]
async fn strikes_in_two_windows_are_no_ban() {
    let (clock, limiter) = limiter(doubling());
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    clock.advance(minutes(10) - Duration::from_millis(1));
    assert_eq!(strikes_left(&check(&limiter).await), 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(strikes_left(&check(&limiter).await), 3);
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    assert!(check(&limiter).await.is_allowed());
}

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

/// Strikes in the peace do not prolong it.
#[tokio::test]
async fn strikes_without_a_ban_do_not_delay_forgiveness() {
    let (clock, limiter) = limiter(doubling());
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    clock.advance(minutes(5 + 59));
    let _ = limiter.strike("ann", 1).await.expect("a strike");
    clock.advance(minutes(1));
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(5)));
}

#[tokio::test]
async fn without_doubling_all_bans_are_equally_long() {
    let (clock, limiter) = limiter(Penalty::after(1).lasting(minutes(7)));
    for _ in 0..5 {
        let _ = limiter.strike("ann", 1).await.expect("a strike");
        assert_eq!(check(&limiter).await.retry_after(), Some(minutes(7)));
        clock.advance(minutes(7));
        assert!(check(&limiter).await.is_allowed());
    }
}

#[tokio::test]
async fn nothing_during_a_ban_changes_when_it_ends() {
    let (clock, limiter) = limiter(doubling());
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    for left in (1..=5).rev() {
        assert_eq!(check(&limiter).await.retry_after(), Some(minutes(left)));
        let strike = limiter.strike("ann", 3).await.expect("no strike");
        assert_eq!((strike.charged(), strike.uncharged()), (0, 3));
        clock.advance(minutes(1));
    }
    assert_eq!(strikes_left(&check(&limiter).await), 3);
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(10)));
}

#[tokio::test]
async fn a_prolonging_ban_starts_anew_with_each_request_and_strike() {
    let (clock, limiter) = limiter(doubling().prolonging());
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    for _ in 0..3 {
        clock.advance(minutes(4));
        let peeked = limiter.peek("ann").await.expect("a decision");
        assert_eq!(peeked.retry_after(), Some(minutes(1)));
        assert_eq!(check(&limiter).await.retry_after(), Some(minutes(5)));
        clock.advance(minutes(4));
        let _ = limiter.strike("ann", 1).await.expect("a strike");
        let peeked = limiter.peek("ann").await.expect("a decision");
        assert_eq!(peeked.retry_after(), Some(minutes(5)));
    }
    clock.advance(minutes(5));
    assert!(check(&limiter).await.is_allowed());
    // It is still the first ban.
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(10)));
}

#[tokio::test]
async fn strikes_beyond_a_ban_do_not_count() {
    let (_, limiter) = limiter(doubling());
    let strike = limiter.strike("ann", u64::MAX).await.expect("strikes");
    assert!(strike.is_allowed());
    assert_eq!(strike.charged(), 3);
    assert_eq!(check(&limiter).await.retry_after(), Some(minutes(5)));
}

#[tokio::test]
async fn a_ban_by_hand_needs_no_strikes_and_does_not_count() {
    let (clock, limiter) = limiter(doubling());
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    let hour = minutes(60);
    limiter.ban("ann", hour).await.expect("a ban");
    assert_eq!(check(&limiter).await.retry_after(), Some(hour));
    assert!(limiter.check("bob").await.expect("a decision").is_allowed());
    // A shorter one leaves it as it is, a longer one does not.
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    assert_eq!(check(&limiter).await.retry_after(), Some(hour));
    limiter.ban("ann", 2 * hour).await.expect("a ban");
    assert_eq!(check(&limiter).await.retry_after(), Some(2 * hour));
    clock.advance(2 * hour);
    assert_eq!(strikes_left(&check(&limiter).await), 3);
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
    let (_, store) = memory();
    let limiter = Limiter::new(store.clone(), doubling());
    for caller in 0..1_000_u64 {
        assert!(
            limiter
                .check(caller)
                .await
                .expect("a decision")
                .is_allowed()
        );
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
    let (clock, store) = memory();
    let of = |penalty| Limiter::new(store.clone(), Policy::new("bans", penalty));
    let (long, short) = (of(doubling()), of(Penalty::after(1).lasting(minutes(1))));
    let _ = long.strike("ann", 3).await.expect("strikes");
    assert_eq!(check(&short).await.retry_after(), Some(minutes(5)));
    let _ = long.strike("bob", 2).await.expect("strikes");
    // One strike is a ban now: the next one.
    assert!(short.check("bob").await.expect("a decision").is_allowed());
    let _ = short.strike("bob", 1).await.expect("a strike");
    clock.advance(Duration::from_secs(59));
    assert!(!short.check("bob").await.expect("a decision").is_allowed());
}
