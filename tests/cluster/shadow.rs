//! Shadow policies in a cluster: in the call of their request if they are in its slot, and in a
//! call of their own if not.

use crate::prelude::*;
use crate::support::trace;

/// Two enforced policies of one caller, and two shadow policies. Those are of the same slot, or
/// the last is one for all callers.
fn limiter(store: &RedisStore, is_last_shared: bool) -> Limiter {
    let newer = Policy::new("newer", SlidingLog::per_day(4)).shadow();
    let policies = [
        Policy::new("old", TokenBucket::per_day(100)),
        Policy::new("day", FixedWindow::per_day(100)),
        Policy::new("new", FixedWindow::per_day(3)).shadow(),
        match is_last_shared {
            true => newer.shared(),
            false => newer,
        },
    ];
    denying_limiter(store.clone(), policies)
}

fn calls(cluster: &RedisCluster) -> u64 {
    let mut calls = 0;
    for node in &cluster.nodes {
        calls += node.ran("eval") + node.ran("evalsha");
    }
    calls
}

/// Returns what is left of the enforced and of the shadow policies.
async fn left(limiter: &Limiter, caller: &str) -> Vec<u64> {
    let peek = limiter.peek(caller).await.expect("a decision");
    let policies = peek.policies().chain(peek.shadow_policies());
    policies.map(|policy| policy.remaining()).collect()
}

#[tokio::test]
async fn shadows_in_a_cluster_deny_what_they_would_deny_alone() {
    let cluster = RedisCluster::start(3, 0);
    let trace = trace::record(&mut Random::new(), 300);
    let clock = Arc::new(ManualClock::new());
    let store = patient().clock(clock.clone());
    let store = store.connect(&cluster.url()).expect("a store");
    trace::assert_shadows_say_what_they_would(&trace, &clock, store).await;
}

#[tokio::test]
async fn policies_of_one_slot_are_one_call_and_others_are_calls_of_their_own() {
    let cluster = RedisCluster::start(3, 0);
    let store = store_at(&cluster.url());
    // A new connection asks its node for the script once.
    let is_asked = || cluster.nodes.iter().all(|node| node.ran("evalsha") > 0);
    eventually_async("all connections", || async { is_asked() }).await;
    for (is_last_shared, expected) in [(false, 1), (true, 2)] {
        let limiter = limiter(&store, is_last_shared);
        for number in 0..8 {
            // Every node knows the scripts after the first calls.
            let caller = format!("{is_last_shared}-{number}");
            let _ = limiter.peek(&*caller).await.expect("a decision");
            let decision = limiter.check(&*caller).await.expect("a decision");
            known(&decision, 2).await;
            let before = calls(&cluster);
            let decision = limiter.check(&*caller).await.expect("a decision");
            known(&decision, 2).await;
            assert_eq!(decision.policies().len(), 2);
            let spent = calls(&cluster) - before;
            // A denial of the shared policy is cached.
            let is_cached = is_last_shared && number >= 2;
            let is_so = spent == expected || is_cached && spent == 1;
            assert!(is_so, "{caller}: {spent}");
        }
    }
}

/// The enforced policies are in several slots: then each shadow policy is by itself, and what is
/// refunded of the enforced ones is not of theirs.
#[tokio::test]
async fn shadows_beside_a_check_of_several_slots_are_by_themselves() {
    let cluster = RedisCluster::start(3, 0);
    let new_all = Policy::new("new-all", SlidingLog::per_day(4)).shared();
    let policies = [
        Policy::new("own", TokenBucket::per_day(5)),
        Policy::new("all", FixedWindow::per_day(3)).shared(),
        Policy::new("new", FixedWindow::per_day(4)).shadow(),
        new_all.shadow(),
    ];
    let limiter = denying_limiter(store_at(&cluster.url()), policies);
    for number in 0..6 {
        let decision = limiter.check("ann").await.expect("a decision");
        known(&decision, 2).await;
        assert_eq!(decision.is_allowed(), number < 3, "{number}");
        let denied = decision.shadow_denied().count();
        assert_eq!(denied, if number < 4 { 0 } else { 2 }, "{number}");
    }
    assert_eq!(left(&limiter, "ann").await, [2, 0, 0, 0]);
}
