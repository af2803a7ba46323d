//! Configuration errors of policies that settle.

use std::time::Duration;

use tower_throttle::{
    Concurrency, LeakyBucket, Limiter, Outcome, Policy, RateLimitLayer, Settle, TokenBucket, settle,
};

use super::window;
use crate::support::assert_config_error;

#[track_caller]
fn assert_error(policy: Policy, code: &str, start: &str) {
    let name = r#"policy "units": "#;
    let built = RateLimitLayer::builder().policy(policy).build();
    assert_config_error(built, code, &format!("{name}{start}"));
}

#[test]
fn what_cannot_hold_cannot_settle() {
    let full = |_: &Outcome<'_>| Settle::Full;
    let leased = Policy::new("units", TokenBucket::per_second(1_000)).lease();
    let start = "a policy whose requests hold units cannot have `lease()`";
    assert_error(leased.settle_by(full), "cannot-hold", start);

    let paced = Policy::new("units", LeakyBucket::per_second(1).queue(5));
    let start = "a policy whose requests hold units cannot have a LeakyBucket with a queue";
    assert_error(paced.settle_by(full), "cannot-hold", start);

    let permits = Policy::new("units", Concurrency::new(5));
    let start = "a policy whose requests hold units cannot have a Concurrency quota";
    assert_error(permits.settle_by(full), "cannot-hold", start);
}

#[test]
fn a_time_that_is_out_of_range_is_an_error_before_and_after() {
    let full = |_: &Outcome<'_>| Settle::Full;
    let short = Duration::from_millis(999);
    let start = "`hold_for(999ms)`";
    let before = window("units", 10).hold_for(short).settle_by(full);
    assert_error(before, "hold-out-of-range", start);
    let after = window("units", 10).settle_by(full).hold_for(short);
    assert_error(after, "hold-out-of-range", start);
    let builder = RateLimitLayer::builder();
    let second = window("units", 10)
        .settle_by(full)
        .hold_for(Duration::from_secs(1));
    assert!(builder.policy(second).build().is_ok());
}

#[test]
fn a_settler_checks_its_own_settings() {
    for (settler, start) in [(0, "0 is not"), (99, "99 is not"), (1_000, "1000 is not")] {
        let policy = window("units", 10).settle_by(settle::status([404, settler]));
        assert_error(policy, "status-out-of-range", start);
    }
    let none: [u16; 0] = [];
    let empty = window("units", 10).settle_by(settle::status(none));
    assert_error(empty, "zero", "`settle::status` is zero or empty");

    let name = window("units", 10).settle_by(settle::header("no name"));
    assert_error(name, "header-name", r#""no name" is not a header name"#);

    let bytes = window("units", 10).settle_by(settle::body_bytes(0));
    assert_error(bytes, "zero", "`settle::body_bytes` is zero or empty");
}

#[test]
fn a_policy_that_can_charge_nothing_is_an_error() {
    let nothing = || window("units", 10).cost(0).max_debt(0);
    let policy = nothing().settle_by(settle::failures());
    assert_error(
        policy,
        "settles-nothing",
        "`settle_by(..)` with `cost(0)` and no debt",
    );
    for policy in [
        nothing().cost_by(|_| 1).settle_by(settle::failures()),
        nothing().cost(1).settle_by(settle::failures()),
        nothing().max_debt(1).settle_by(settle::failures()),
    ] {
        assert!(RateLimitLayer::builder().policy(policy).build().is_ok());
    }
}

#[test]
fn a_limiter_has_no_responses() {
    let policy = window("units", 10).settle_by(settle::failures());
    let built = Limiter::builder().policy(policy).build();
    let start = r#"policy "units": `settle_by(..)` reads requests"#;
    assert_config_error(built, "no-request-to-read", start);
}
