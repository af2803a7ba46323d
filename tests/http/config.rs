//! Configuration errors are reported at build time, and say what to change.

use crate::{prelude::*, standards::MODES};

/// Each message is in the tests of quotas as text, and so are the other codes.
#[test]
fn quotas_that_cannot_be_kept_exactly_are_errors() {
    for (text, code) in [
        ("fixed window of 1 per 0 seconds", "zero-period"),
        ("1000001 per second", "rate-too-high"),
        ("1 per day, burst 105", "bucket-too-deep"),
        ("0 per second, burst 1", "burst-without-refill"),
        ("5 per second, initial 6", "initial-above-burst"),
        ("fixed window of 1 per 3153600000001 ms", "window-too-long"),
        ("fixed window of 9007199254740992 per ms", "limit-too-large"),
    ] {
        assert_config_error(text.parse::<Quota>(), code, "");
    }
    for text in [
        "1000000 per second",
        "1 per day, burst 104",
        "0 per second",
        "5 per second, initial 0",
        "1 per 1000 ns",
        "fixed window of 0 per ms",
        "fixed window of 1 per 3153600000000 ms",
        "fixed window of 9007199254740991 per ms",
    ] {
        assert!(text.parse::<Quota>().is_ok(), "{text}");
    }
    let longest = TokenBucket::new(1, Duration::MAX);
    let most = TokenBucket::per_second(1).burst(u64::MAX);
    for (deep, start) in [(longest, "at 1 per 18446744073709551615.9"), (most, "at 1")] {
        assert_config_error(Quota::try_from(deep), "bucket-too-deep", start);
    }
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Result<Limiter, ConfigError> {
    let policies = policies.into_iter();
    let builder = policies.fold(Limiter::builder(), |builder, policy| builder.policy(policy));
    builder.build()
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> Result<RateLimitLayer, ConfigError> {
    let (builder, policies) = (RateLimitLayer::builder(), policies.into_iter());
    policies
        .fold(builder, |builder, policy| builder.policy(policy))
        .build()
}

fn named(name: &str) -> Policy {
    Policy::new(name, TokenBucket::per_second(10).burst(20))
}

#[test]
fn policies_that_would_mislead_are_errors() {
    let fails = |policies: Vec<Policy>, code, start: &str| {
        assert_config_error(limiter(policies.clone()), code, start);
        assert_config_error(layer(policies), code, start);
    };
    fails(vec![], "no-policies", "no policy;");
    let too_long = "x".repeat(65);
    for name in ["", "a\nb", "tab\t", "caf\u{e9}", "\u{7f}", "\0", &too_long] {
        let start = format!("policy name {name:?} is not");
        fails(vec![named(name)], "policy-name", &start);
    }
    for name in [" ", "\"", "\\", "~", &"x".repeat(64)] {
        assert!(layer([named(name)]).is_ok(), "{name:?}");
    }
    let bare: Policy = TokenBucket::per_second(10).into();
    for (policies, name) in [
        (vec![named("a"), named("b"), named("a")], "a"),
        (vec![bare.clone(), bare], "10-per-second"),
    ] {
        let start = format!("two policies named {name:?} would");
        fails(policies, "duplicate-policy", &start);
    }
    let window = Policy::new("a", FixedWindow::per_day(10));
    for (policy, text) in [
        (named("a").cost(21), "21)` exceeds the 20 units"),
        (window.cost(11), "11)` exceeds the 10 units"),
    ] {
        let start = format!(r#"policy "a": `cost({text}"#);
        fails(vec![policy], "cost-above-capacity", &start);
    }
    assert!(layer([named("a").cost(20)]).is_ok());
    // The policy is named, also where the mistake is in its quota.
    let inside = Policy::new("slow", FixedWindow::new(1, Duration::ZERO));
    let start = r#"policy "slow": a period of zero;"#;
    fails(vec![inside.clone()], "zero-period", start);
    // `main` prints the error that it returns by `Debug`.
    let text = r#"Err(policy "slow": a period of zero; use a longer one (zero-period))"#;
    assert_eq!(format!("{:?}", layer([inside]).map(drop)), text);
}

#[test]
fn settings_that_contradict_or_protect_nothing_are_errors() {
    for (policy, code, start) in [
        // In either order.
        (
            named("a").shared().key(key::global()),
            "shared-and-keyed",
            "",
        ),
        (named("a").key(key::peer()).shared(), "shared-and-keyed", ""),
        (
            named("a").key(key::method()).cost(21),
            "cost-above-capacity",
            "`cost(21)`",
        ),
        (
            named("a").key(key::header("not a header")),
            "header-name",
            r#""not a header" is not a header name;"#,
        ),
    ] {
        let start = format!(r#"policy "a": {start}"#);
        assert_config_error(layer([policy]), code, &start);
    }
    assert!(layer([named("a").when(|_| true).shared().max_debt(1)]).is_ok());

    let builder = || RateLimitLayer::builder().policy(named("a"));
    let empty = builder().partition_key_secret(b"").build();
    let start = "`partition_key_secret` is zero or empty;";
    assert_config_error(empty, "zero", start);
    // The fields of these have no place for it, and do not name policies.
    for headers in MODES.into_iter().skip(1) {
        let secret = builder().partition_key_secret(b"secret").headers(headers);
        let (code, start) = ("partition-key-unsupported", "`partition_key_secret(..)`");
        assert_config_error(secret.build(), code, start);
        let shadow = builder().headers(headers).shadow_with_headers();
        let start = "`shadow_with_headers()` with header fields that do not name policies";
        assert_config_error(shadow.build(), "shadow-headers-unsupported", start);
    }
}

#[test]
fn a_limiter_refuses_policies_that_read_requests() {
    let quota = Quota::try_from(TokenBucket::per_second(1)).expect("a quota");
    for (policy, method) in [
        (named("a").key(key::peer()), "key"),
        (named("a").cost_by(|_| 1), "cost_by"),
        (named("a").when(|_| true), "when"),
        (named("a").quota_by(move |_| quota), "quota_by"),
        (
            named("a").on_missing_key(OnMissingKey::Skip),
            "on_missing_key",
        ),
    ] {
        let start = format!(r#"policy "a": `{method}(..)` reads requests"#);
        assert_config_error(limiter([policy.clone()]), "no-request-to-read", &start);
        assert!(layer([policy]).is_ok());
    }
}

#[test]
fn a_bare_quota_is_named_after_itself() {
    for (quota, name) in [
        ("10 per second", "10-per-second"),
        ("30 per minute, burst 60", "30-per-minute-burst-60"),
        (
            "fixed window of 5000 per day",
            "fixed-window-of-5000-per-day",
        ),
        (
            "fixed window of 5000 per day, aligned",
            "fixed-window-of-5000-per-calendar-day",
        ),
        ("1 per 1500 ms", "1-per-1500-milliseconds"),
    ] {
        let quota: Quota = quota.parse().expect("a quota");
        let decision = at_once(limiter([quota.into()]).expect("a limiter").peek("ann"));
        let decision = decision.expect("a decision");
        let names: Vec<_> = decision.policies().map(|policy| policy.name()).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
#[should_panic(expected = "more than 1,000,000 a second")]
fn the_short_constructor_panics_with_the_mistake() {
    let _ = RateLimitLayer::new(TokenBucket::per_second(2_000_000));
}
