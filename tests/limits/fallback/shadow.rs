//! Shadow policies while the store fails: no local buckets, and no say.

use super::fake_store::{Does, Switch, limiter_with, unavailable, unavailable_later};
use crate::support::prelude::*;

fn old() -> Policy {
    Policy::new("old", FixedWindow::per_hour(2))
}

fn new() -> Policy {
    Policy::new("new", FixedWindow::per_hour(1))
}

fn limiter(store: &Switch) -> Limiter {
    limiter_with(store.clone(), [old(), new().shadow()], |builder| builder)
}

/// Returns what is left of this caller's bucket in the process.
async fn left_locally(store: &Switch, policy: Policy) -> u64 {
    left(&store.looking_locally([policy]), "ann").await
}

#[tokio::test]
async fn a_shadow_policy_has_no_buckets_in_the_process() {
    let clock = Arc::new(ManualClock::new());
    for does in [unavailable(), unavailable_later()] {
        let store = Switch::on(&clock);
        store.now(does);
        let limiter = limiter(&store);
        for number in 0..5 {
            let decision = limiter.check("ann").await.unwrap();
            // The enforced policy is decided as it is without a shadow policy.
            assert_eq!(decision.source(), Source::Local);
            assert_eq!(decision.is_allowed(), number < 2);
            assert_eq!(decision.shadow_policies().count(), 0);
        }
        assert_eq!(left_locally(&store, old()).await, 0);
        assert_eq!(left_locally(&store, new()).await, 1);
        let unknown = limiter.metrics().policy("new").unwrap().unknown;
        assert_eq!(unknown, 5);
        // The store answers again, and the shadow policy with it.
        store.now(Does::Answers);
        let decision = limiter.check("ann").await.unwrap();
        assert_eq!(
            (decision.source(), decision.shadow_policies().count()),
            (Source::Store, 1)
        );
    }
}

/// What a layer's `Deny` says is about the policies that are enforced.
#[tokio::test]
async fn a_setting_of_the_limiter_is_not_for_shadow_policies() {
    let clock = Arc::new(ManualClock::new());
    let store = Switch::down(&clock);
    for choice in [
        OnStoreFailure::Deny,
        OnStoreFailure::Allow,
        OnStoreFailure::share_of(2),
    ] {
        let limiter = limiter_with(store.clone(), [new().shadow()], |builder| {
            builder.on_store_failure(choice)
        });
        for _ in 0..3 {
            assert!(limiter.check("ann").await.unwrap().is_allowed());
        }
    }
    assert_eq!(left_locally(&store, new()).await, 1);
}
