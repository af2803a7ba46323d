//! A penalty beside other policies.

use super::{check, doubling, is_banned, minutes, strikes_left, striking};
use crate::support::prelude::*;

#[tokio::test]
async fn each_denial_is_a_strike_and_the_last_one_is_answered_as_a_ban() {
    for is_first in [false, true] {
        let (store, clock) = manual_store();
        let mut policies = striking(doubling());
        if is_first {
            policies.reverse();
        }
        let limiter = limiter_of(store, policies);
        let allowed = check(&limiter).await;
        assert!(allowed.is_allowed());
        assert_eq!(allowed.charged(), 1);
        for left in [2, 1] {
            let denied = check(&limiter).await;
            assert!(!denied.is_allowed() && !is_banned(&denied));
            assert_eq!(strikes_left(&denied), left);
        }
        let banned = check(&limiter).await;
        assert!(is_banned(&banned));
        // The bucket has room after an hour.
        assert!(banned.retry_after() > Some(minutes(59)));
        clock.advance(minutes(5));
        let denied = check(&limiter).await;
        assert!(!is_banned(&denied) && !denied.is_allowed());
        assert_eq!(strikes_left(&denied), 2, "a strike of its own");
    }
}

#[tokio::test]
async fn a_banned_caller_never_waits() {
    let (store, _) = manual_store();
    let limiter = limiter_of(
        store,
        [
            Policy::new("bans", doubling()),
            Policy::new("held", Concurrency::new(1)),
        ],
    );
    limiter
        .ban("ann", Duration::from_millis(50))
        .await
        .expect("a ban");
    let permit = limiter
        .acquire("ann", minutes(60))
        .await
        .expect("an answer");
    assert!(!permit.is_allowed());
    assert!(is_banned(permit.decision()));
}

/// It is denied later, or not at all.
#[tokio::test(start_paused = true)]
async fn a_caller_that_may_wait_gets_no_strike() {
    let store = MemoryStore::new();
    let window = FixedWindow::new(1, Duration::from_secs(1));
    let policies = [
        Policy::new("api", window),
        Policy::new("bans", Penalty::after(2)).strike_on_denial(),
    ];
    let limiter = limiter_of(store, policies);
    assert!(check(&limiter).await.is_allowed());
    let denied = limiter.acquire("ann", Duration::from_micros(1)).await;
    assert!(!denied.expect("an answer").is_allowed());
    let peeked = limiter.peek("ann").await.expect("a decision");
    assert_eq!(strikes_left(&peeked), 2);
    let denied = limiter.acquire("ann", Duration::ZERO).await;
    assert!(!denied.expect("an answer").is_allowed());
    let peeked = limiter.peek("ann").await.expect("a decision");
    assert_eq!(strikes_left(&peeked), 1);
}

#[tokio::test]
async fn a_shadow_penalty_counts_and_bans_nobody() {
    let (store, _) = manual_store();
    let bans = Policy::new("bans", doubling()).shadow();
    let limiter = limiter_of(
        store,
        [Policy::new("api", TokenBucket::per_second(5)), bans],
    );
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    let decision = check(&limiter).await;
    assert!(decision.is_allowed());
    let denied: Vec<_> = decision
        .shadow_denied()
        .map(|policy| policy.name())
        .collect();
    assert_eq!(denied, ["bans"]);
    let seen = limiter.metrics();
    assert_eq!(
        seen.policy("bans").map(|checks| checks.shadow_denied),
        Some(1)
    );
}

/// A layer or limiter of a penalty alone: bans by hand.
#[tokio::test]
async fn a_penalty_alone_admits_all_but_the_banned() {
    let limiter = Limiter::new(MemoryStore::new(), Policy::new("bans", doubling()));
    for _ in 0..100 {
        assert!(check(&limiter).await.is_allowed());
    }
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    assert!(is_banned(&limiter.check_now("ann").expect("a decision")));
    let requests = limiter.metrics().requests;
    assert_eq!((requests.banned, requests.denied), (1, 0));
}
