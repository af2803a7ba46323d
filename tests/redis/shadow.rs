//! Shadow policies on Redis: one call for each request, whatever becomes of it.

use tower_throttle::metrics::Checks;

use crate::prelude::*;
use crate::{
    batching::{Asked, enqueue},
    support::trace,
};

/// One enforced policy, and two shadow policies of other algorithms.
fn policies([old, new, newer]: [u64; 3]) -> [Policy; 3] {
    [
        Policy::new("old", TokenBucket::per_day(old)),
        Policy::new("new", FixedWindow::per_day(new)).shadow(),
        Policy::new("newer", SlidingLog::per_day(newer)).shadow(),
    ]
}

#[tokio::test]
async fn shadows_deny_what_they_would_deny_alone() {
    for ttl in [Duration::ZERO, Duration::from_secs(1)] {
        let server = RedisServer::start();
        let trace = trace::record(&mut Random::new(), 600);
        let clock = Arc::new(ManualClock::new());
        let store = patient().denial_cache_ttl(ttl).clock(clock.clone());
        let store = store.connect(&server.url()).expect("a store");
        trace::assert_shadows_say_what_they_would(&trace, &clock, store).await;
    }
}

#[tokio::test]
async fn one_call_decides_all_policies_of_a_request() {
    let (server, limiter) = served(policies([1_000, 3, 4])).await;
    let _ = limiter.check("-").await.expect("a decision");
    let expected = [&[][..], &[], &[], &["new"], &["new", "newer"]];
    for (number, expected) in expected.into_iter().enumerate() {
        let before = server.ran("evalsha");
        let decision = limiter.check("ann").await.expect("a decision");
        // The outcomes are there with the decision.
        assert_eq!(decision.shadow_policies().count(), 2);
        assert_eq!(denied_in_shadow(&decision), expected, "{number}");
        assert_eq!(server.ran("evalsha") - before, 1, "{number}");
    }
    // Both shadow policies are denied from the cache now, and the enforced one is asked.
    let before = server.ran("evalsha");
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(denied_in_shadow(&decision), ["new", "newer"]);
    assert_eq!(server.ran("evalsha") - before, 1);
    let counted = ["new", "newer"].map(|policy| {
        let checks = checks_of(&limiter, policy);
        let admitted = checks.allowed + checks.near;
        (admitted, checks.shadow_denied, checks.unknown)
    });
    // One of them is from before the first.
    assert_eq!(counted, [(4, 3, 0), (5, 2, 0)]);

    let before = server.ran("evalsha");
    for units in 1..=3 {
        let peek = limiter.peek("bob").await.expect("a decision");
        assert_eq!(peek.shadow_policies().count(), 2);
        let debit = limiter.debit("bob", units).await.expect("charged");
        assert_eq!(debit.shadow_policies().count(), 2);
        let taken = limiter.take_up_to("bob", units).await.expect("a decision");
        assert_eq!(taken.shadow_policies().count(), 2);
    }
    assert_eq!(server.ran("evalsha") - before, 9);
    // Refunds have a queue of their own, in which they share calls.
    let credit = limiter.credit("bob", 2).await.expect("refunded");
    assert_eq!(credit.decision().shadow_policies().count(), 2);
}

fn check(limiter: &Limiter, key: impl Into<Key>) -> Asked {
    let (limiter, key) = (limiter.clone(), key.into());
    Box::pin(async move { limiter.check(key).await })
}

/// A call with many shadow policies is no longer than others.
#[tokio::test]
async fn a_call_has_a_bounded_number_of_checks() {
    let old = Policy::new("old", TokenBucket::per_day(1_000));
    let window = FixedWindow::per_day(1_000);
    let shadows = (0..40).map(|number| Policy::new(format!("new {number}"), window).shadow());
    let (server, limiter) = served([old].into_iter().chain(shadows)).await;
    let before = server.ran("evalsha");
    let mut asked: Vec<Asked> = (0..40_u64).map(|key| check(&limiter, key)).collect();
    enqueue(&mut asked).await;
    for check in asked {
        let decision = check.await.expect("a decision");
        assert_eq!(decision.shadow_policies().count(), 40);
    }
    // At most four are sent alone. Of the others, each call takes three: 123 checks.
    let spent = server.ran("evalsha") - before;
    assert!(spent > 36 / 3, "{spent} calls");
}

/// A request whose client hangs up is charged as a whole or not at all.
#[tokio::test]
async fn a_request_that_is_dropped_while_it_is_decided_is_charged_as_a_whole() {
    let (_server, limiter) = served(policies([1_000, 3, 4])).await;
    let mut asked = vec![check(&limiter, "ann")];
    enqueue(&mut asked).await;
    drop(asked);
    let is_charged = || async {
        let peek = limiter.peek("ann").await.expect("a decision");
        let left = peek.policies().chain(peek.shadow_policies());
        left.map(|policy| policy.remaining()).collect::<Vec<_>>() == [999, 2, 3]
    };
    eventually_async("the charge", is_charged).await;
    assert_eq!(checks_of(&limiter, "new"), Checks::default());
}

/// Unexpected data under the key of one policy is an error of that policy alone.
#[tokio::test]
async fn corrupt_state_of_a_shadow_policy_is_unknown_and_denies_nobody() {
    let (server, limiter) = served(policies([1_000, 3, 4])).await;
    let keys = limiter.storage_keys("ann");
    server.command(&["SET", &keys[1], "no number"]);
    let before = server.ran("evalsha");
    let decision = limiter.check("ann").await.expect("a decision");
    assert!(decision.is_allowed());
    let spent = server.ran("evalsha") - before;
    assert_eq!(spent, 1, "nothing is asked again");
    let listed = decision.shadow_policies().map(|policy| policy.name());
    assert_eq!(listed.collect::<Vec<_>>(), ["newer"]);
    assert_eq!(checks_of(&limiter, "new").unknown, 1);
    assert_eq!(checks_of(&limiter, "newer").unknown, 0);
    // Without a decision, nothing is known of its shadow policies.
    server.command(&["SET", &limiter.storage_keys("bob")[0], "no number"]);
    let error = limiter.check("bob").await.expect_err("an error");
    assert!(error.is_corrupt_state());
    let newer = checks_of(&limiter, "newer");
    assert_eq!((newer.allowed, newer.unknown), (1, 1));
}

#[tokio::test]
async fn a_shadow_policy_may_lease_units() {
    let hot = |name| Policy::new(name, TokenBucket::per_second(1_000_000)).lease();
    let (server, limiter) = served([hot("old"), hot("new").shadow()]).await;
    let before = server.ran("evalsha");
    let mut checks = 0;
    let is_leased = || {
        checks += 1;
        let limiter = limiter.clone();
        async move {
            let decision = limiter.check("ann").await.expect("a decision");
            known(&decision, 1).await;
            decision.source() == Source::Lease
        }
    };
    eventually_async("a lease", is_leased).await;
    for _ in 0..2_000 {
        let decision = limiter.check("ann").await.expect("a decision");
        known(&decision, 1).await;
    }
    let spent = server.ran("evalsha") - before;
    assert!(spent < checks + 1_000, "{spent} calls for {checks} + 2,000");
    let new = checks_of(&limiter, "new");
    assert_eq!((new.allowed + new.near, new.unknown), (checks + 2_000, 0));
}

/// On racing threads, with cached denials and batches of any size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_requests_charge_each_policy_exactly() {
    let (server, limiter) = served(policies([1_500, 700, 1_000])).await;
    let before = server.ran("evalsha");
    let tasks: Vec<_> = (0..2_000)
        .map(|_| tokio::spawn(check(&limiter, "ann")))
        .collect();
    let mut allowed = 0;
    for task in tasks {
        let decision = task.await.expect("no panic").expect("a decision");
        allowed += usize::from(decision.is_allowed());
    }
    assert_eq!(allowed, 1_500);
    // They share calls with their shadows.
    let spent = server.ran("evalsha") - before;
    assert!(spent < 1_000, "{spent} calls");
    for (policy, units) in [("new", 700), ("newer", 1_000)] {
        let all = || async {
            let checks = checks_of(&limiter, policy);
            checks.allowed + checks.near + checks.shadow_denied + checks.unknown == 2_000
        };
        eventually_async("the last answer", all).await;
        let checks = checks_of(&limiter, policy);
        assert_eq!((checks.shadow_denied, checks.unknown), (2_000 - units, 0));
    }
}

/// The first of them carries the others, so its failure is theirs.
#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn a_shadow_policy_is_charged_once_although_the_reply_is_late() {
    let redis = tower_throttle::testing::SimulatedRedis::new();
    let store = hasty();
    let store = store.simulated(&redis).expect("a store");
    let shadow = |name| Policy::new(name, TokenBucket::per_day(10)).shadow();
    let limiter = denying_limiter(store, ["a", "b", "c"].map(shadow));
    // Calls arrive in time, and their replies do not.
    redis.set_delay(Duration::from_millis(30));
    let decision = limiter.check("ann").await.expect("shadows only");
    assert!(decision.is_allowed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let unknown = ["a", "b", "c"].map(|policy| checks_of(&limiter, policy).unknown);
    assert_eq!(unknown, [1, 1, 1]);
    redis.set_delay(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let peek = limiter.peek("ann").await.expect("a decision");
    let left = peek.shadow_policies().map(|policy| policy.remaining());
    assert_eq!(left.collect::<Vec<_>>(), [9, 9, 9]);
}
