//! Policies that are enforced for a share of their callers.

use crate::support::prelude::*;
use crate::support::web::get;
use http::StatusCode;

/// Denies everything where it is enforced.
fn limiter(name: &str, percent: u8) -> Limiter {
    let policy = Policy::new(name, FixedWindow::per_hour(0));
    let policy = policy.enforce_for_percent(percent);
    Limiter::builder()
        .policy(policy)
        .build()
        .expect("a limiter")
}

fn is_enforced(limiter: &Limiter, caller: &str) -> bool {
    let decision = limiter.check_now(caller).expect("a decision");
    // It is on one side, never on both.
    let (enforced, shadows) = (
        decision.policies().len(),
        decision.shadow_policies().count(),
    );
    assert_eq!(enforced + shadows, 1);
    assert_eq!(decision.is_allowed(), enforced == 0);
    enforced == 1
}

fn callers() -> impl Iterator<Item = String> {
    (0..4_000).map(|number| format!("caller-{number}"))
}

#[test]
fn a_caller_stays_on_its_side() {
    let (one, another) = (limiter("api", 30), limiter("api", 30));
    let mut enforced = 0;
    for caller in callers() {
        let first = is_enforced(&one, &caller);
        assert_eq!(is_enforced(&one, &caller), first);
        assert_eq!(is_enforced(&another, &caller), first);
        enforced += usize::from(first);
    }
    // Six standard deviations.
    assert!((1_025..=1_375).contains(&enforced), "{enforced} of 4,000");
}

/// Written down, so that two processes, also of two releases, agree.
const OF_FORTY: [&str; 7] = [
    "caller-0",
    "caller-7",
    "caller-11",
    "caller-15",
    "caller-23",
    "caller-30",
    "caller-37",
];

/// The name and the key decide, and nothing of the process.
#[test]
fn the_same_callers_are_in_the_share_of_each_process() {
    let policy = || Policy::new("api", FixedWindow::per_hour(0)).enforce_for_percent(30);
    let layer = |store: MemoryStore| {
        let builder = RateLimitLayer::builder().store(store);
        let policy = policy().key(key::header("x-api-key"));
        builder.policy(policy).build().expect("a layer")
    };
    let clock = Arc::new(ManualClock::new());
    let another_store = MemoryStore::builder().clock(clock).build();
    let layers = [layer(MemoryStore::new()), layer(another_store)];
    let limiter = limiter("api", 30);
    for caller in callers().take(40) {
        let expected = OF_FORTY.contains(&&*caller);
        assert_eq!(is_enforced(&limiter, &caller), expected, "{caller}");
        for layer in &layers {
            let answer = ask(layer, get([("x-api-key", &caller)]));
            let is_denied = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_denied, expected, "{caller}");
        }
    }
}

#[test]
fn a_larger_share_keeps_the_callers_of_a_smaller_one() {
    let (tenth, half) = (limiter("api", 10), limiter("api", 50));
    let all = limiter("api", 100);
    for caller in callers() {
        assert!(!is_enforced(&tenth, &caller) || is_enforced(&half, &caller));
        assert!(is_enforced(&all, &caller));
    }
}

#[test]
fn two_policies_choose_different_callers() {
    let (one, another) = (limiter("one", 50), limiter("another", 50));
    let both =
        callers().filter(|caller| is_enforced(&one, caller) && is_enforced(&another, caller));
    let both = both.count();
    assert!((800..=1_200).contains(&both), "{both} of 4,000");
}

/// The two sides have the same buckets, so nothing is forgotten when the share grows.
#[tokio::test]
async fn a_caller_that_changes_sides_keeps_its_bucket() {
    let store = MemoryStore::new();
    let with = |policy: Policy| Limiter::new(store.clone(), policy);
    let policy = || Policy::new("api", FixedWindow::per_hour(3));
    let before = with(policy().shadow());
    for _ in 0..2 {
        assert!(before.check_now("ann").expect("a decision").is_allowed());
    }
    let after = with(policy());
    assert!(after.check_now("ann").expect("a decision").is_allowed());
    assert!(!after.check_now("ann").expect("a decision").is_allowed());
    assert_eq!(
        before
            .check_now("ann")
            .expect("a decision")
            .shadow_denied()
            .count(),
        1
    );
}
