//! Mistakes that can be seen at build time are seen there, and say what to change.

use std::time::Duration;

use tower_throttle::{
    ConfigError, FixedWindow, Limiter, OnMissingKey, Policy, Quota, RateLimitLayer, TokenBucket,
};

fn bucket(bucket: TokenBucket) -> Result<Quota, ConfigError> {
    bucket.try_into()
}

fn window(window: FixedWindow) -> Result<Quota, ConfigError> {
    window.try_into()
}

#[test]
fn quotas_that_cannot_be_kept_exactly_are_refused() {
    let second = Duration::from_secs(1);
    let zero = Duration::ZERO;
    assert_eq!(
        bucket(TokenBucket::new(1, zero)),
        Err(ConfigError::ZeroPeriod)
    );
    assert_eq!(
        window(FixedWindow::new(1, zero)),
        Err(ConfigError::ZeroPeriod)
    );
    assert_eq!(
        bucket(TokenBucket::per_second(1_000_001)),
        Err(ConfigError::RateTooHigh {
            limit: 1_000_001,
            period: second
        })
    );
    assert_eq!(
        bucket(TokenBucket::per_day(1).burst(105)),
        Err(ConfigError::BucketTooDeep {
            limit: 1,
            period: second * 86_400
        })
    );
    assert_eq!(
        bucket(TokenBucket::new(1, Duration::MAX)),
        Err(ConfigError::BucketTooDeep {
            limit: 1,
            period: Duration::MAX
        })
    );
    assert_eq!(
        bucket(TokenBucket::per_second(1).burst(u64::MAX)),
        Err(ConfigError::BucketTooDeep {
            limit: 1,
            period: second
        })
    );
    assert_eq!(
        bucket(TokenBucket::per_second(0).burst(1)),
        Err(ConfigError::BurstWithoutRefill { burst: 1 })
    );
    assert_eq!(
        bucket(TokenBucket::per_second(5).burst(0)),
        Err(ConfigError::Zero { setting: "burst" })
    );
    assert_eq!(
        bucket(TokenBucket::per_second(5).initial(6)),
        Err(ConfigError::InitialAboveBurst {
            initial: 6,
            burst: 5
        })
    );
    let window_of = |window: Duration| self::window(FixedWindow::new(1, window));
    let fraction = Duration::from_micros(1_500);
    assert_eq!(
        window_of(fraction),
        Err(ConfigError::WindowNotWholeMilliseconds { window: fraction })
    );
    let century = second * 86_400 * 365 * 100;
    assert!(window_of(century).is_ok());
    let longer = century + Duration::from_millis(1);
    assert_eq!(
        window_of(longer),
        Err(ConfigError::WindowTooLong { window: longer })
    );
    assert_eq!(
        window(FixedWindow::per_day(1 << 53)),
        Err(ConfigError::LimitTooLarge { limit: 1 << 53 })
    );
}

#[test]
fn quotas_at_the_edges_are_kept() {
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
fn policies_that_would_mislead_are_refused() {
    let ten = TokenBucket::per_second(10);
    let mistakes: [(Vec<Policy>, ConfigError); 7] = [
        (vec![], ConfigError::NoPolicies),
        (
            vec![Policy::new("", ten)],
            ConfigError::PolicyName {
                name: String::new(),
            },
        ),
        (
            vec![Policy::new("a\nb", ten)],
            ConfigError::PolicyName {
                name: "a\nb".into(),
            },
        ),
        (
            vec![Policy::new("ü", ten)],
            ConfigError::PolicyName { name: "ü".into() },
        ),
        (
            vec![
                Policy::new("a", ten),
                Policy::new("b", ten),
                Policy::new("a", ten),
            ],
            ConfigError::DuplicatePolicy { name: "a".into() },
        ),
        (
            vec![ten.into(), ten.into()],
            ConfigError::DuplicatePolicy {
                name: "10-per-second".into(),
            },
        ),
        (
            vec![Policy::new("a", ten).cost(11)],
            ConfigError::InPolicy {
                name: "a".into(),
                mistake: Box::new(ConfigError::CostAboveCapacity {
                    cost: 11,
                    capacity: 10,
                }),
            },
        ),
    ];
    for (policies, mistake) in mistakes {
        assert_eq!(limiter(policies.clone()).err(), Some(mistake.clone()));
        assert_eq!(layer(policies).err(), Some(mistake));
    }
    let long = Policy::new("x".repeat(65), ten);
    assert!(matches!(
        limiter([long]),
        Err(ConfigError::PolicyName { .. })
    ));
    let inside = limiter([Policy::new("slow", FixedWindow::new(1, Duration::ZERO))]);
    let message = inside.expect_err("a window of zero").to_string();
    assert!(
        message.contains("slow") && message.contains("zero"),
        "{message}"
    );
}

#[test]
fn settings_that_contradict_or_protect_nothing_are_refused() {
    let shared = Policy::new("a", TokenBucket::per_second(1)).shared();
    let keyed = RateLimitLayer::builder().policy(shared.key(tower_throttle::key::global()));
    let mistake = Box::new(ConfigError::SharedAndKeyed);
    let name = "a".to_owned();
    assert_eq!(
        keyed.build().err(),
        Some(ConfigError::InPolicy { name, mistake })
    );

    let secret = RateLimitLayer::builder()
        .policy(TokenBucket::per_second(1))
        .partition_key(b"");
    let setting = "partition_key";
    assert_eq!(secret.build().err(), Some(ConfigError::Zero { setting }));
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
        let mistake = Box::new(ConfigError::NoRequestToRead { method });
        let name = "a".to_owned();
        let expected = ConfigError::InPolicy { name, mistake };
        assert_eq!(limiter([policy.clone()]).err(), Some(expected));
        assert!(layer([policy]).is_ok());
    }
}

#[test]
fn the_order_of_shared_and_the_readers_does_not_matter() {
    let bucket = || Policy::new("a", TokenBucket::per_second(1));
    assert!(layer([bucket().when(|_| true).shared().max_debt(1)]).is_ok());
    let keyed = bucket().key(tower_throttle::key::peer()).shared();
    let name = "a".to_owned();
    let mistake = Box::new(ConfigError::SharedAndKeyed);
    let expected = ConfigError::InPolicy { name, mistake };
    assert_eq!(layer([keyed]).err(), Some(expected));
}

#[test]
fn a_limit_of_zero_is_no_mistake_and_refuses_everything() {
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
