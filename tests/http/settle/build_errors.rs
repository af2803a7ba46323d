//! Configuration errors of policies that settle.

use super::window;
use crate::prelude::*;

const QUEUE: &str = "leaky bucket of 1 per second, queue 5";

#[test]
fn settings_that_cannot_settle_are_errors() {
    let full = |_: &Outcome<'_>| Settle::Full;
    let units = || window("units", 10);
    let of = |quota: &str| Policy::new("units", quota.parse::<Quota>().expect("a quota"));
    let status = |code| units().settle_by(settle::status([404, code]));
    let (short, second) = (Duration::from_millis(999), Duration::from_secs(1));
    let nothing = || units().cost(0).max_debt(0);
    let fails = |policy, code, start: &str| {
        let built = RateLimitLayer::builder().policy(policy).build();
        assert_config_error(built, code, &format!(r#"policy "units": {start}"#));
    };
    for (policy, what) in [
        (of("1000 per second").lease(), "`lease()`"),
        (of(QUEUE), "a LeakyBucket with a queue"),
        (of("5 at once"), "a Concurrency quota"),
    ] {
        let start = format!("a policy whose requests hold units cannot have {what}");
        fails(policy.settle_by(full), "cannot-hold", &start);
    }
    // Before and after.
    let before = units().hold_for(short).settle_by(full);
    for policy in [before, units().settle_by(full).hold_for(short)] {
        fails(policy, "hold-out-of-range", "`hold_for(999ms)`");
    }
    for code in [0, 99, 1_000] {
        let start = format!("{code} is not");
        fails(status(code), "status-out-of-range", &start);
    }
    let none = units().settle_by(settle::status([0_u16; 0]));
    fails(none, "zero", "`settle::status` is zero or empty");
    let none = units().settle_by(settle::body_bytes(0));
    fails(none, "zero", "`settle::body_bytes` is zero or empty");
    let unnamed = units().settle_by(settle::header("no name"));
    fails(unnamed, "header-name", r#""no name" is not a header name"#);
    let start = "`settle_by(..)` with `cost(0)` and no debt";
    let nothing_to_settle = nothing().settle_by(settle::failures());
    fails(nothing_to_settle, "settles-nothing", start);
    for policy in [
        units().settle_by(full).hold_for(second),
        nothing().cost_by(|_| 1).settle_by(settle::failures()),
        nothing().cost(1).settle_by(settle::failures()),
        nothing().max_debt(1).settle_by(settle::failures()),
    ] {
        assert!(RateLimitLayer::builder().policy(policy).build().is_ok());
    }
    // A limiter has no responses.
    let built = Limiter::builder().policy(units().settle_by(full)).build();
    let start = r#"policy "units": `settle_by(..)` reads requests"#;
    assert_config_error(built, "no-request-to-read", start);
}
