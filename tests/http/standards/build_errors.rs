//! Checklist 2: wrong settings are errors at build time.

use std::time::Duration;

use tower_throttle::{
    ConfigError, FixedWindow, HeaderFormat, Policy, RateLimitLayer, TokenBucket, key,
};

use crate::support::assert_config_error;

fn build<const N: usize>(policies: [Policy; N]) -> Result<RateLimitLayer, ConfigError> {
    let builder = RateLimitLayer::builder();
    let builder = policies
        .into_iter()
        .fold(builder, |all, one| all.policy(one));
    builder.build()
}

fn named(name: &str) -> Policy {
    Policy::new(name, TokenBucket::per_second(1))
}

#[test]
fn bad_names_fail() {
    let too_long = "x".repeat(65);
    for name in [
        "",
        "tab\t",
        "line\n",
        "caf\u{e9}",
        "\u{7f}",
        "\0",
        &too_long,
    ] {
        let start = format!("policy name {name:?} is not");
        assert_config_error(build([named(name)]), "policy-name", &start);
    }
}

#[test]
fn the_longest_and_the_shortest_names_pass() {
    for name in [" ", "\"", "\\", "~", &"x".repeat(64)] {
        assert!(
            RateLimitLayer::builder()
                .policy(named(name))
                .build()
                .is_ok()
        );
    }
}

#[test]
fn two_policies_of_one_name_fail() {
    assert_config_error(
        build([named("api"), named("web"), named("api")]),
        "duplicate-policy",
        r#"two policies named "api" would"#,
    );
    // A bare quota is named after its numbers.
    let bare = || Policy::from(TokenBucket::per_second(10));
    assert_config_error(build([bare(), bare()]), "duplicate-policy", "two policies");
}

#[test]
fn no_policy_fails() {
    assert_config_error(build([]), "no-policies", "no policy;");
}

#[test]
fn a_period_of_no_time_fails() {
    let bucket = Policy::new("api", TokenBucket::new(1, Duration::ZERO));
    let window = Policy::new("api", FixedWindow::new(1, Duration::ZERO));
    for policy in [bucket, window] {
        let start = r#"policy "api": a period of zero;"#;
        assert_config_error(build([policy]), "zero-period", start);
    }
}

#[test]
fn a_fixed_cost_above_the_capacity_fails() {
    let fails = |policy: Policy, cost: u64, capacity: u64| {
        let start = format!(r#"policy "api": `cost({cost})` exceeds the {capacity} units"#);
        assert_config_error(build([policy]), "cost-above-capacity", &start);
    };
    let bucket = |cost| Policy::new("api", TokenBucket::per_second(10).burst(20)).cost(cost);
    let window = |cost| Policy::new("api", FixedWindow::per_day(10)).cost(cost);
    fails(bucket(21), 21, 20);
    fails(window(11), 11, 10);
    let fits = RateLimitLayer::builder().policy(bucket(20));
    assert!(fits.build().is_ok());
    // A cost that was set after the key is checked, too.
    let policy = bucket(1).key(key::method()).cost(21);
    fails(policy, 21, 20);
}

#[test]
fn mistakes_inside_keys_fail() {
    let policy = |key: key::Extractor| Policy::new("api", TokenBucket::per_second(1)).key(key);
    assert_config_error(
        build([policy(key::header("not a header"))]),
        "header-name",
        r#"policy "api": "not a header" is not a header name;"#,
    );
}

#[test]
#[should_panic(expected = "a period of zero")]
fn the_short_constructor_panics_with_the_same_words() {
    let _ = RateLimitLayer::new(TokenBucket::new(1, Duration::ZERO));
}

/// `main` prints the error that it returns by `Debug`.
#[test]
fn an_error_returned_from_main_says_what_to_change() {
    let error = build([Policy::new("api", TokenBucket::new(1, Duration::ZERO))]);
    assert_eq!(
        format!("{:?}", error.map(drop)),
        r#"Err(policy "api": a period of zero; use a longer one (zero-period))"#,
    );
}

/// A limit of 0 is no such error: it denies everything on purpose.
#[test]
fn a_limit_of_zero_builds_and_denies_without_a_wait() {
    use crate::support::web::{ask, layer_of, plain};

    let (layer, _) = layer_of([Policy::new("closed", FixedWindow::per_day(0)).shared()]);
    ask(&layer, plain()).assert_is(
        r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store
RateLimit-Policy: "closed";q=0;w=86400
RateLimit: "closed";r=0

{"type":"about:blank","title":"Forbidden","status":403,"detail":"Cost 1 exceeds policy \"closed\" (0).","violated-policies":["closed"]}"#,
    );
}

#[test]
fn partition_keys_beside_fields_without_a_place_for_them_fail() {
    for headers in [
        HeaderFormat::Draft7,
        HeaderFormat::Draft6,
        HeaderFormat::XRateLimitDelta,
        HeaderFormat::XRateLimitEpoch,
        HeaderFormat::None,
    ] {
        let builder = RateLimitLayer::builder().policy(named("api"));
        let builder = builder.partition_key_secret(b"secret").headers(headers);
        assert_config_error(
            builder.build(),
            "partition-key-unsupported",
            "`partition_key_secret(..)`",
        );
    }
}
