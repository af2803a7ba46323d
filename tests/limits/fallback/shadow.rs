//! Shadow policies while the store fails: no local buckets, and no say.

use super::fake_store::{Does, Switch, unavailable, unavailable_later};
use crate::support::prelude::*;

fn old() -> Policy {
    Policy::new("old", FixedWindow::per_hour(2))
}

fn new() -> Policy {
    Policy::new("new", FixedWindow::per_hour(1))
}

#[tokio::test]
async fn a_shadow_policy_has_no_buckets_in_the_process() {
    let clock = Arc::new(ManualClock::new());
    for does in [unavailable(), unavailable_later()] {
        let store = Switch::on(&clock);
        store.now(does);
        let limiter = limiter_of(store.clone(), [old(), new().shadow()]);
        for number in 0..5 {
            // The enforced policy is decided as it is without a shadow policy.
            let decision = check(&limiter, "ann").await;
            assert_eq!(decision.source(), Source::Local);
            assert_eq!(decision.is_allowed(), number < 2);
            assert_eq!(decision.shadow_policies().count(), 0);
        }
        let local = [old(), new()].map(|policy| store.looking_locally([policy]));
        assert_eq!(left(&local[0], "ann").await, 0);
        assert_eq!(left(&local[1], "ann").await, 1);
        assert_eq!(limiter.metrics().policy("new").unwrap().unknown, 5);
        // The store answers again, and the shadow policy with it.
        store.now(Does::Answers);
        let decision = check(&limiter, "ann").await;
        assert_eq!(decision.source(), Source::Store);
        assert_eq!(decision.shadow_policies().count(), 1);
    }
}

/// What a limiter chooses for failures is about the policies that are enforced.
#[tokio::test]
async fn a_setting_of_the_limiter_is_not_for_shadow_policies() {
    let store = Switch::down(&Arc::new(ManualClock::new()));
    for choice in [
        OnStoreFailure::Deny,
        OnStoreFailure::Allow,
        OnStoreFailure::share_of(2),
    ] {
        let limiter = Limiter::builder().store(store.clone());
        let limiter = limiter.policy(new().shadow()).on_store_failure(choice);
        let limiter = limiter.build().unwrap();
        for _ in 0..3 {
            assert!(check(&limiter, "ann").await.is_allowed());
        }
    }
    assert_eq!(left(&store.looking_locally([new()]), "ann").await, 1);
}
