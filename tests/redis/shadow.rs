//! Shadow policies on Redis: one call for each request, whatever becomes of it.

use tower_throttle::metrics::Checks;

use crate::prelude::*;
use crate::{
    batching::{Asked, enqueue},
    support::trace,
};

/// One enforced policy, and two shadow policies of other algorithms.
fn limiter(store: &RedisStore) -> Limiter {
    denying_limiter(
        store.clone(),
        [
            Policy::new("old", TokenBucket::per_day(1_000)),
            Policy::new("new", FixedWindow::per_day(3)).shadow(),
            Policy::new("newer", SlidingLog::per_day(4)).shadow(),
        ],
    )
}

fn checks_of(limiter: &Limiter, policy: &str) -> Checks {
    *limiter.metrics().policy(policy).expect("its numbers")
}

fn names(decision: &Decision) -> Vec<&str> {
    decision
        .shadow_denied()
        .map(|policy| policy.name())
        .collect()
}

async fn known(decision: &Decision, shadows: usize) {
    let are_known = || async { decision.shadow_policies().count() == shadows };
    eventually_async("the shadow policies' answers", are_known).await;
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
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = limiter(&store);
    ready(&limiter).await;
    let _ = limiter.check("-").await.expect("a decision");
    let expected = [&[][..], &[], &[], &["new"], &["new", "newer"]];
    for (number, expected) in expected.into_iter().enumerate() {
        let before = ran(&server, "evalsha");
        let decision = limiter.check("ann").await.expect("a decision");
        // The outcomes are there with the decision.
        assert_eq!(decision.shadow_policies().count(), 2);
        assert_eq!(names(&decision), expected, "{number}");
        assert_eq!(ran(&server, "evalsha") - before, 1, "{number}");
    }
    // Both shadow policies are denied from the cache now, and the enforced one is asked.
    let before = ran(&server, "evalsha");
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(
        (decision.source(), names(&decision)),
        (Source::Store, vec!["new", "newer"])
    );
    assert_eq!(ran(&server, "evalsha") - before, 1);
    let counted = ["new", "newer"].map(|policy| {
        let checks = checks_of(&limiter, policy);
        (
            checks.allowed + checks.near,
            checks.shadow_denied,
            checks.unknown,
        )
    });
    // One of them is from before the first.
    assert_eq!(counted, [(4, 3, 0), (5, 2, 0)]);

    let before = ran(&server, "evalsha");
    for units in 1..=3 {
        let peek = limiter.peek("bob").await.expect("a decision");
        assert_eq!(peek.shadow_policies().count(), 2);
        let debit = limiter.debit("bob", units).await.expect("charged");
        assert_eq!(debit.shadow_policies().count(), 2);
        let taken = limiter.take_up_to("bob", units).await.expect("a decision");
        assert_eq!(taken.shadow_policies().count(), 2);
    }
    assert_eq!(ran(&server, "evalsha") - before, 9);
    // Refunds have a queue of their own, in which they share calls.
    let credit = limiter.credit("bob", 2).await.expect("refunded");
    assert_eq!(credit.decision().shadow_policies().count(), 2);
}

/// A caller that the enforced policy denies from the cache still costs a call for a shadow policy
/// that has room, and none once that is denied, too.
#[tokio::test]
async fn cached_denials_are_counted() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = denying_limiter(
        store,
        [
            Policy::new("old", FixedWindow::per_day(1)),
            Policy::new("new", FixedWindow::per_day(3)).shadow(),
        ],
    );
    ready(&limiter).await;
    let before = ran(&server, "evalsha");
    let mut sources = Vec::new();
    for number in 0..50 {
        let decision = limiter.check("ann").await.expect("a decision");
        known(&decision, 1).await;
        assert_eq!(decision.is_allowed(), number < 1);
        assert_eq!(
            decision.shadow_denied().count(),
            usize::from(number >= 3),
            "{number}"
        );
        sources.push(decision.source());
    }
    assert_eq!(sources[..2], [Source::Store; 2]);
    assert!(
        sources[2..]
            .iter()
            .filter(|source| **source == Source::Cache)
            .count()
            >= 40
    );
    let spent = ran(&server, "evalsha") - before;
    assert!((4..=14).contains(&spent), "{spent} calls");
    let new = checks_of(&limiter, "new");
    assert_eq!((new.allowed + new.near, new.shadow_denied), (3, 47));
}

fn check(limiter: &Limiter, key: &'static str) -> Asked {
    let limiter = limiter.clone();
    Box::pin(async move { limiter.check(key).await })
}

/// A call with many shadow policies is no longer than others.
#[tokio::test]
async fn a_call_has_a_bounded_number_of_checks() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let builder = Limiter::builder()
        .store(store)
        .on_store_failure(OnStoreFailure::Deny);
    let builder = builder.policy(Policy::new("old", TokenBucket::per_day(1_000)));
    let shadows = (0..40).map(|number| format!("new {number}"));
    let builder = shadows.fold(builder, |builder, name| {
        builder.policy(Policy::new(name, FixedWindow::per_day(1_000)).shadow())
    });
    let limiter = builder.build().expect("a limiter");
    ready(&limiter).await;
    let before = ran(&server, "evalsha");
    let check = |key: u64| -> Asked {
        let limiter = limiter.clone();
        Box::pin(async move { limiter.check(key).await })
    };
    let mut asked: Vec<Asked> = (0..40).map(check).collect();
    enqueue(&mut asked).await;
    for check in asked {
        let decision = check.await.expect("a decision");
        assert_eq!(decision.shadow_policies().count(), 40);
    }
    // At most four are sent alone. Of the others, each call takes three: 123 checks.
    let spent = ran(&server, "evalsha") - before;
    assert!(spent > 36 / 3, "{spent} calls");
}

/// A request whose client hangs up is charged as a whole or not at all.
#[tokio::test]
async fn a_request_that_is_dropped_while_it_is_decided_is_charged_as_a_whole() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = limiter(&store);
    ready(&limiter).await;
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
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = limiter(&store);
    ready(&limiter).await;
    let keys = limiter.storage_keys("ann");
    server.command(&["SET", &keys[1], "no number"]);
    let before = ran(&server, "evalsha");
    let decision = limiter.check("ann").await.expect("a decision");
    assert!(decision.is_allowed());
    assert_eq!(
        ran(&server, "evalsha") - before,
        1,
        "nothing is asked again"
    );
    let listed = decision.shadow_policies().map(|policy| policy.name());
    assert_eq!(listed.collect::<Vec<_>>(), ["newer"]);
    assert_eq!(checks_of(&limiter, "new").unknown, 1);
    assert_eq!(checks_of(&limiter, "newer").unknown, 0);
    // Without a decision, nothing is known of its shadow policies.
    server.command(&["SET", &limiter.storage_keys("bob")[0], "no number"]);
    assert!(
        limiter
            .check("bob")
            .await
            .expect_err("an error")
            .is_corrupt_state()
    );
    let newer = checks_of(&limiter, "newer");
    assert_eq!((newer.allowed, newer.unknown), (1, 1));
}

#[tokio::test]
async fn a_shadow_policy_may_lease_units() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let limiter = denying_limiter(
        store,
        [
            Policy::new("old", TokenBucket::per_second(1_000_000)).lease(),
            Policy::new("new", TokenBucket::per_second(1_000_000))
                .lease()
                .shadow(),
        ],
    );
    ready(&limiter).await;
    let before = ran(&server, "evalsha");
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
    let spent = ran(&server, "evalsha") - before;
    assert!(
        spent < checks + 1_000,
        "{spent} calls for {checks} and 2,000 checks"
    );
    let new = checks_of(&limiter, "new");
    assert_eq!((new.allowed + new.near, new.unknown), (checks + 2_000, 0));
}

/// On racing threads, with cached denials and batches of any size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_requests_charge_each_policy_exactly() {
    let server = RedisServer::start();
    let limiter = denying_limiter(
        store_at(&server.url()),
        [
            Policy::new("old", TokenBucket::per_day(1_500)),
            Policy::new("new", FixedWindow::per_day(700)).shadow(),
            Policy::new("newer", SlidingLog::per_day(1_000)).shadow(),
        ],
    );
    ready(&limiter).await;
    let before = ran(&server, "evalsha");
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
    let spent = ran(&server, "evalsha") - before;
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
    let store = patient().timeout(Duration::from_millis(50));
    let store = store.simulated(&redis).expect("a store");
    let limiter = Limiter::builder().store(store).shadow_all();
    let limiter = ["a", "b", "c"].iter().fold(limiter, |limiter, name| {
        limiter.policy(Policy::new(*name, TokenBucket::per_day(10)))
    });
    let limiter = limiter.build().expect("a limiter");
    // Calls arrive in time, and their replies do not.
    redis.set_delay(Duration::from_millis(30));
    assert!(
        limiter
            .check("ann")
            .await
            .expect("shadows only")
            .is_allowed()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let unknown = ["a", "b", "c"].map(|policy| checks_of(&limiter, policy).unknown);
    assert_eq!(unknown, [1, 1, 1]);
    redis.set_delay(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let peek = limiter.peek("ann").await.expect("a decision");
    let left = peek.shadow_policies().map(|policy| policy.remaining());
    assert_eq!(left.collect::<Vec<_>>(), [9, 9, 9]);
}
