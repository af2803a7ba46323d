//! Policies that are enforced for a share of their callers.

use http::StatusCode;

use crate::support::prelude::*;
use crate::support::web::get;

/// Denies everything where it is enforced.
fn policy(name: &str, percent: u8) -> Policy {
    Policy::new(name, FixedWindow::per_hour(0)).enforce_for_percent(percent)
}

fn limiter(name: &str, percent: u8) -> Limiter {
    Limiter::new(MemoryStore::new(), policy(name, percent))
}

fn is_enforced(limiter: &Limiter, caller: &str) -> bool {
    let decision = limiter.check_now(caller).expect("a decision");
    // It is on one side, never on both.
    let enforced = decision.policies().len();
    assert_eq!(enforced + decision.shadow_policies().count(), 1);
    assert_eq!(decision.is_allowed(), enforced == 0);
    enforced == 1
}

fn callers() -> impl Iterator<Item = String> {
    (0..4_000).map(|number| format!("caller-{number}"))
}

/// A larger share keeps the callers of a smaller one.
#[test]
fn a_caller_stays_on_its_side_and_each_policy_chooses_others() {
    let [tenth, half, all] = [10, 50, 100].map(|percent| limiter("api", percent));
    let (again, another) = (limiter("api", 50), limiter("another", 50));
    let (mut enforced, mut both) = (0, 0);
    for caller in callers() {
        let is_in_half = is_enforced(&half, &caller);
        assert_eq!(is_enforced(&half, &caller), is_in_half);
        assert_eq!(is_enforced(&again, &caller), is_in_half);
        assert!(!is_enforced(&tenth, &caller) || is_in_half);
        assert!(is_enforced(&all, &caller));
        enforced += usize::from(is_in_half);
        both += usize::from(is_in_half && is_enforced(&another, &caller));
    }
    // Six standard deviations.
    assert!((1_810..=2_190).contains(&enforced), "{enforced} of 4,000");
    assert!((800..=1_200).contains(&both), "{both} of 4,000");
}

/// Written down, so that two processes, also of two releases, agree.
const OF_FORTY: [u64; 7] = [0, 7, 11, 15, 23, 30, 37];

/// The name and the key decide, and nothing of the process.
#[test]
fn the_same_callers_are_in_the_share_of_each_process() {
    let layers = [MemoryStore::new(), manual_store().0].map(|store| {
        let policy = policy("api", 30).key(key::header("x-api-key"));
        RateLimitLayer::new(policy).store(store)
    });
    let limiter = limiter("api", 30);
    for (number, caller) in (0..).zip(callers().take(40)) {
        let expected = OF_FORTY.contains(&number);
        assert_eq!(is_enforced(&limiter, &caller), expected, "{caller}");
        for layer in &layers {
            let answer = ask(layer, get([("x-api-key", &caller)]));
            let is_denied = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_denied, expected, "{caller}");
        }
    }
}

/// The two sides have the same buckets, so nothing is forgotten when the share grows.
#[tokio::test]
async fn a_caller_that_changes_sides_keeps_its_bucket() {
    let store = MemoryStore::new();
    let policy = || Policy::new("api", FixedWindow::per_hour(3));
    let [before, after] =
        [policy().shadow(), policy()].map(|policy| Limiter::new(store.clone(), policy));
    for _ in 0..2 {
        assert!(check(&before, "ann").await.is_allowed());
    }
    assert!(check(&after, "ann").await.is_allowed());
    assert!(!check(&after, "ann").await.is_allowed());
    assert_eq!(check(&before, "ann").await.shadow_denied().count(), 1);
}
