//! Configuration errors are reported at build time, and say what to change.

use std::time::Duration;

use tower_throttle::{
    ConfigError, FixedWindow, Limiter, OnMissingKey, Policy, Quota, RateLimitLayer, TokenBucket,
};

use crate::support::assert_config_error;

fn bucket(bucket: TokenBucket) -> Result<Quota, ConfigError> {
    bucket.try_into()
}

fn window(window: FixedWindow) -> Result<Quota, ConfigError> {
    window.try_into()
}

#[test]
fn quotas_that_cannot_be_kept_exactly_are_errors() {
    let window_of = |length: Duration| window(FixedWindow::new(1, length));
    let day = Duration::from_secs(86_400);
    let century = day * 365 * 100;
    let deep = "bucket-too-deep";
    let cases = [
        (
            bucket(TokenBucket::new(1, Duration::ZERO)),
            "zero-period",
            "a period of zero;",
        ),
        (
            window_of(Duration::ZERO),
            "zero-period",
            "a period of zero;",
        ),
        (
            bucket(TokenBucket::per_second(1_000_001)),
            "rate-too-high",
            "1000001 per 1s is more than 1,000,000 a second;",
        ),
        (
            bucket(TokenBucket::per_day(1).burst(105)),
            deep,
            "at 1 per 86400s this bucket",
        ),
        (
            bucket(TokenBucket::new(1, Duration::MAX)),
            deep,
            "at 1 per 18446744073709551615.999999999s this bucket",
        ),
        (
            bucket(TokenBucket::per_second(1).burst(u64::MAX)),
            deep,
            "at 1 per 1s this bucket",
        ),
        (
            bucket(TokenBucket::per_second(0).burst(1)),
            "burst-without-refill",
            "a burst of 1 with a limit of 0,",
        ),
        (
            bucket(TokenBucket::per_second(5).burst(0)),
            "zero",
            "`burst` is zero",
        ),
        (
            bucket(TokenBucket::per_second(5).initial(6)),
            "initial-above-burst",
            "`initial(6)` exceeds the burst of 5;",
        ),
        (
            window_of(Duration::from_micros(1_500)),
            "window-not-whole-milliseconds",
            "a window of 1.5ms has a fraction",
        ),
        (
            window_of(century + Duration::from_millis(1)),
            "window-too-long",
            "a window of 3153600000.001s exceeds",
        ),
        (
            window(FixedWindow::per_day(1 << 53)),
            "limit-too-large",
            "a limit of 9007199254740992 is too large",
        ),
    ];
    for (quota, code, start) in cases {
        assert_config_error(quota, code, start);
    }
    assert!(window_of(century).is_ok());
}

#[test]
fn quotas_at_the_edges_are_accepted() {
    for quota in [
        bucket(TokenBucket::per_second(1_000_000)),
        bucket(TokenBucket::per_day(1).burst(104)),
        bucket(TokenBucket::per_second(0)),
        bucket(TokenBucket::per_second(5).initial(0)),
        bucket(TokenBucket::new(1, Duration::from_nanos(1_000))),
        window(FixedWindow::per_second(0)),
        window(FixedWindow::new((1 << 53) - 1, Duration::from_millis(1))),
    ] {
        assert!(quota.is_ok(), "{quota:?}");
    }
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Result<Limiter, ConfigError> {
    let builder = policies
        .into_iter()
        .fold(Limiter::builder(), |builder, policy| builder.policy(policy));
    builder.build()
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> Result<RateLimitLayer, ConfigError> {
    let builder = RateLimitLayer::builder();
    policies
        .into_iter()
        .fold(builder, |builder, policy| builder.policy(policy))
        .build()
}

#[test]
fn policies_that_would_mislead_are_errors() {
    let ten = TokenBucket::per_second(10);
    let name = "policy-name";
    let cases = [
        (vec![], "no-policies", "no policy;"),
        (vec![Policy::new("", ten)], name, r#"policy name "" is not"#),
        (
            vec![Policy::new("a\nb", ten)],
            name,
            r#"policy name "a\nb" is not"#,
        ),
        (
            vec![Policy::new("ü", ten)],
            name,
            r#"policy name "ü" is not"#,
        ),
        (
            vec![
                Policy::new("a", ten),
                Policy::new("b", ten),
                Policy::new("a", ten),
            ],
            "duplicate-policy",
            r#"two policies named "a" would"#,
        ),
        (
            vec![ten.into(), ten.into()],
            "duplicate-policy",
            r#"two policies named "10-per-second" would"#,
        ),
        (
            vec![Policy::new("a", ten).cost(11)],
            "cost-above-capacity",
            r#"policy "a": `cost(11)` exceeds the 10 units"#,
        ),
    ];
    for (policies, code, start) in cases {
        assert_config_error(limiter(policies.clone()), code, start);
        assert_config_error(layer(policies), code, start);
    }
    let long = Policy::new("x".repeat(65), ten);
    assert_config_error(limiter([long]), name, "policy name \"xxx");
    let inside = limiter([Policy::new("slow", FixedWindow::new(1, Duration::ZERO))]);
    let message = inside.expect_err("a window of zero").to_string();
    assert!(
        message.contains("slow") && message.contains("zero"),
        "{message}"
    );
}

#[test]
fn settings_that_contradict_or_protect_nothing_are_errors() {
    let shared = Policy::new("a", TokenBucket::per_second(1)).shared();
    let keyed = RateLimitLayer::builder().policy(shared.key(tower_throttle::key::global()));
    assert_config_error(keyed.build(), "shared-and-keyed", r#"policy "a": "#);

    let secret = RateLimitLayer::builder()
        .policy(TokenBucket::per_second(1))
        .partition_key_secret(b"");
    assert_config_error(
        secret.build(),
        "zero",
        "`partition_key_secret` is zero or empty;",
    );
}

#[test]
fn a_limiter_refuses_policies_that_read_requests() {
    let policy = || Policy::new("a", TokenBucket::per_second(1));
    let readers = [
        (policy().key(tower_throttle::key::peer()), "key"),
        (policy().cost_by(|_| 1), "cost_by"),
        (policy().when(|_| true), "when"),
        (
            policy().quota_by(|_| TokenBucket::per_second(1).try_into().expect("a quota")),
            "quota_by",
        ),
        (
            policy().on_missing_key(OnMissingKey::Skip),
            "on_missing_key",
        ),
    ];
    for (policy, method) in readers {
        let start = format!(r#"policy "a": `{method}(..)` reads requests"#);
        assert_config_error(limiter([policy.clone()]), "no-request-to-read", &start);
        assert!(layer([policy]).is_ok());
    }
}

#[test]
fn the_order_of_shared_and_the_readers_does_not_matter() {
    let bucket = || Policy::new("a", TokenBucket::per_second(1));
    assert!(layer([bucket().when(|_| true).shared().max_debt(1)]).is_ok());
    let keyed = bucket().key(tower_throttle::key::peer()).shared();
    assert_config_error(layer([keyed]), "shared-and-keyed", r#"policy "a": "#);
}

#[test]
fn a_limit_of_zero_is_valid_and_denies_everything() {
    let layer = layer([Policy::new("closed", TokenBucket::per_second(0))]);
    assert!(layer.is_ok());
    let limiter = limiter([Policy::new("closed", FixedWindow::per_second(0))]).expect("a limiter");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let decision = runtime.block_on(limiter.check("ann")).expect("a decision");
    assert_eq!(decision.verdict(), tower_throttle::Verdict::Impossible);
    assert_eq!(decision.retry_after(), None);
}

#[test]
fn a_bare_quota_is_named_after_itself() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let name = |policy: Policy| {
        let limiter = limiter([policy]).expect("a limiter");
        let decision = runtime.block_on(limiter.peek("ann")).expect("a decision");
        decision
            .policies()
            .map(|policy| policy.name().to_owned())
            .collect::<String>()
    };
    assert_eq!(name(TokenBucket::per_second(10).into()), "10-per-second");
    assert_eq!(
        name(TokenBucket::per_minute(30).burst(60).into()),
        "30-per-minute-burst-60"
    );
    assert_eq!(
        name(FixedWindow::per_day(5_000).into()),
        "5000-per-day-window"
    );
    assert_eq!(
        name(FixedWindow::per_day(5_000).aligned().into()),
        "5000-per-day-aligned"
    );
    assert_eq!(
        name(TokenBucket::new(1, Duration::from_millis(1_500)).into()),
        "1-per-1500ms"
    );
}

#[test]
#[should_panic(expected = "more than 1,000,000 a second")]
fn the_short_constructor_panics_with_the_mistake() {
    let _ = RateLimitLayer::new(TokenBucket::per_second(2_000_000));
}
