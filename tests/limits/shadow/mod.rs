//! Shadow policies: checked and counted, and without any say.

mod beside;
mod limiter;
mod share;
mod waits;

use crate::support::prelude::*;
use crate::support::trace;

#[tokio::test]
async fn shadows_in_memory_deny_what_they_would_deny_alone() {
    let trace = trace::record(&mut Random::new(), 2_000);
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    trace::assert_shadows_say_what_they_would(&trace, &clock, store).await;
}

#[test]
fn errors_of_shadow_policies_are_reported_at_build() {
    let build = |policy: Policy| Limiter::builder().policy(policy).build();
    let policy = || Policy::new("new", TokenBucket::per_second(5));
    for choice in [
        OnStoreFailure::Deny,
        OnStoreFailure::local(),
        OnStoreFailure::share_of(4),
    ] {
        let start = r#"policy "new": a shadow policy cannot have `on_store_failure(..)`"#;
        let built = build(policy().shadow().on_store_failure(choice));
        assert_config_error(built, "cannot-shadow", start);
        let tenth = policy().enforce_for_percent(10);
        assert!(build(tenth.on_store_failure(choice)).is_ok());
        let all = Limiter::builder().policy(policy().on_store_failure(choice));
        assert!(all.shadow_all().build().is_ok());
    }
    assert!(build(policy().shadow().on_store_failure(OnStoreFailure::Allow)).is_ok());

    let permits = || Policy::new("permits", Concurrency::new(3));
    let start = r#"policy "permits": a shadow policy cannot have a Concurrency quota, because its units are held"#;
    assert_config_error(build(permits().shadow()), "cannot-shadow", start);
    let half = permits().enforce_for_percent(50);
    assert_config_error(build(half), "cannot-shadow", start);
    let all = Limiter::builder().policy(permits()).shadow_all().build();
    assert_config_error(all, "cannot-shadow", start);
    assert!(build(permits().enforce_for_percent(100)).is_ok());

    for percent in [0, 101, 255] {
        let start =
            format!(r#"policy "new": `enforce_for_percent({percent})` is outside 1 to 100"#);
        let built = build(policy().enforce_for_percent(percent));
        assert_config_error(built, "percent-out-of-range", &start);
    }
    for percent in [1, 100] {
        assert!(build(policy().enforce_for_percent(percent)).is_ok());
    }
    let shared = policy().shared().enforce_for_percent(10);
    let start = r#"policy "new": `enforce_for_percent(..)` chooses among keys"#;
    assert_config_error(build(shared), "shared-percent", start);
    assert!(build(policy().shared().shadow()).is_ok());
    // Two policies of one name would share their buckets, whatever they do.
    let both = Limiter::builder()
        .policy(policy())
        .policy(policy().shadow());
    assert_config_error(both.build(), "duplicate-policy", "two policies");
}
