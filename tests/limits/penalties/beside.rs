//! A penalty beside other policies.

use std::time::Duration;

use tower_throttle::{
    Concurrency, FixedWindow, Limiter, MemoryStore, Penalty, Policy, TokenBucket, Verdict,
};

use super::{check, doubling, is_banned, limiter_of, memory, minutes, strikes_left, striking};

#[tokio::test]
async fn each_denial_is_a_strike_and_the_last_one_is_answered_as_a_ban() {
    for is_first in [false, true] {
        let (clock, store) = memory();
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
async fn a_banned_request_is_charged_to_no_other_policy() {
    let (clock, store) = memory();
    let limiter = limiter_of(
        store,
        [
            Policy::new("day", FixedWindow::per_day(5)),
            Policy::new("bans", doubling()),
        ],
    );
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    for _ in 0..10 {
        assert!(is_banned(&check(&limiter).await));
        let none = limiter.take_up_to("ann", 3).await.expect("a decision");
        assert!(is_banned(&none));
        assert_eq!(none.charged(), 0);
        assert!(is_banned(
            &limiter.take_up_to("ann", 0).await.expect("a decision")
        ));
    }
    clock.advance(minutes(1));
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    let all = limiter.take_up_to("ann", 9).await.expect("a decision");
    assert_eq!(all.charged(), 5, "strikes are no units");
}

#[tokio::test]
async fn debits_and_credits_leave_penalties_out() {
    let (_, store) = memory();
    let limiter = limiter_of(
        store,
        [
            Policy::new("bans", doubling()),
            Policy::new("tokens", FixedWindow::per_day(1_000)),
        ],
    );
    let debit = limiter.debit("ann", 900).await.expect("a debit");
    assert_eq!(debit.charged(), 900);
    assert_eq!(
        limiter.credit("ann", 5).await.expect("a credit").refunded(),
        5
    );
    let decision = check(&limiter).await;
    assert!(decision.is_allowed());
    assert_eq!(strikes_left(&decision), 3);
    let strike = limiter.strike("ann", 1).await.expect("a strike");
    assert_eq!(strike.policies().len(), 1);
    assert_eq!(strikes_left(&strike), 2);
}

#[tokio::test]
async fn an_impossible_cost_is_a_strike_and_no_ban() {
    let (_, store) = memory();
    let limiter = limiter_of(store, striking(doubling()));
    for _ in 0..3 {
        let denied = limiter.check_n("ann", 9).await.expect("a decision");
        assert_eq!(denied.verdict(), Verdict::Impossible);
    }
    assert!(is_banned(&check(&limiter).await));
}

/// Two penalties: what one denies is a strike for the other, and not for itself.
#[tokio::test]
async fn a_ban_is_a_strike_for_another_penalty() {
    let (_, store) = memory();
    let limiter = limiter_of(
        store,
        [
            Policy::new("bans", doubling()),
            Policy::new("stubborn", Penalty::after(4)).strike_on_denial(),
        ],
    );
    limiter.ban("ann", minutes(1)).await.expect("a ban by both");
    limiter.reset("ann").await.expect("a reset");
    let _ = limiter.strike("ann", 3).await.expect("strikes for both");
    let left = |decision: &tower_throttle::Decision| {
        let mut policies = decision.policies();
        let policy = policies.find(|policy| policy.name() == "stubborn");
        policy.expect("the other penalty").remaining()
    };
    let denied = check(&limiter).await;
    assert_eq!(left(&denied), 0);
    assert_eq!(denied.denied_by().count(), 2);
}

#[tokio::test]
async fn a_banned_caller_never_waits() {
    let (_, store) = memory();
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
    let (_, store) = memory();
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
