//! Shadow policies: checked and counted, and without any say.

mod beside;
mod limiter;

use crate::support::prelude::*;
use crate::support::trace;

#[tokio::test]
async fn shadows_in_memory_deny_what_they_would_deny_alone() {
    let trace = trace::record(&mut Random::new(), 2_000);
    let (store, clock) = manual_store();
    trace::assert_shadows_say_what_they_would(&trace, &clock, store).await;
}

#[test]
fn errors_of_shadow_policies_are_reported_at_build() {
    let alone = |policy: Policy| Limiter::builder().policy(policy);
    let new = || Policy::new("new", TokenBucket::per_second(5));
    let permits = || Policy::new("permits", Concurrency::new(3));
    let [deny, share] = [OnStoreFailure::Deny, OnStoreFailure::share_of(4)];
    for right in [
        alone(new().enforce_for_percent(10).on_store_failure(deny)),
        alone(new().on_store_failure(share)).shadow_all(),
        alone(new().shadow().on_store_failure(OnStoreFailure::Allow)),
        alone(permits().enforce_for_percent(100)),
        alone(new().enforce_for_percent(1)),
        alone(new().shared().shadow()),
    ] {
        assert!(right.build().is_ok());
    }
    let failure = r#"policy "new": a shadow policy cannot have `on_store_failure(..)`"#;
    let held = r#"policy "permits": a shadow policy cannot have a Concurrency quota, because its units are held"#;
    for (wrong, start) in [
        (alone(new().shadow().on_store_failure(deny)), failure),
        (alone(new().shadow().on_store_failure(share)), failure),
        (alone(permits().shadow()), held),
        (alone(permits().enforce_for_percent(50)), held),
        (alone(permits()).shadow_all(), held),
    ] {
        assert_config_error(wrong.build(), "cannot-shadow", start);
    }
    for percent in [0, 101] {
        let wrong = alone(new().enforce_for_percent(percent)).build();
        let start =
            format!(r#"policy "new": `enforce_for_percent({percent})` is outside 1 to 100"#);
        assert_config_error(wrong, "percent-out-of-range", &start);
    }
    let shared = alone(new().shared().enforce_for_percent(10)).build();
    let start = r#"policy "new": `enforce_for_percent(..)` chooses among keys"#;
    assert_config_error(shared, "shared-percent", start);
    // Two policies of one name would share their buckets, whatever they do.
    let twice = alone(new()).policy(new().shadow()).build();
    assert_config_error(twice, "duplicate-policy", "two policies");
}
