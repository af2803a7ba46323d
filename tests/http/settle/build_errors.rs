//! Configuration errors of policies that settle.

use super::window;
use crate::prelude::*;

#[test]
fn settings_that_cannot_settle_are_errors() {
    let full = |_: &Outcome<'_>| Settle::Full;
    let units = || window("units", 10);
    let of = |quota: &str| Policy::new("units", quota.parse::<Quota>().expect("a quota"));
    let status = |code| units().settle_by(settle::status([404, code]));
    let (short, second) = (Duration::from_millis(999), Duration::from_secs(1));
    let nothing = || units().cost(0).max_debt(0);
    let cannot_hold = "a policy whose requests hold units cannot have";
    for (policy, code, start) in [
        (
            of("1000 per second").lease().settle_by(full),
            "cannot-hold",
            format!("{cannot_hold} `lease()`"),
        ),
        (
            of("leaky bucket of 1 per second, queue 5").settle_by(full),
            "cannot-hold",
            format!("{cannot_hold} a LeakyBucket with a queue"),
        ),
        (
            of("5 at once").settle_by(full),
            "cannot-hold",
            format!("{cannot_hold} a Concurrency quota"),
        ),
        // Before and after.
        (
            units().hold_for(short).settle_by(full),
            "hold-out-of-range",
            "`hold_for(999ms)`".to_owned(),
        ),
        (
            units().settle_by(full).hold_for(short),
            "hold-out-of-range",
            "`hold_for(999ms)`".to_owned(),
        ),
        (status(0), "status-out-of-range", "0 is not".to_owned()),
        (status(99), "status-out-of-range", "99 is not".to_owned()),
        (
            status(1_000),
            "status-out-of-range",
            "1000 is not".to_owned(),
        ),
        (
            units().settle_by(settle::status([0_u16; 0])),
            "zero",
            "`settle::status` is zero or empty".to_owned(),
        ),
        (
            units().settle_by(settle::header("no name")),
            "header-name",
            r#""no name" is not a header name"#.to_owned(),
        ),
        (
            units().settle_by(settle::body_bytes(0)),
            "zero",
            "`settle::body_bytes` is zero or empty".to_owned(),
        ),
        (
            nothing().settle_by(settle::failures()),
            "settles-nothing",
            "`settle_by(..)` with `cost(0)` and no debt".to_owned(),
        ),
    ] {
        let built = RateLimitLayer::builder().policy(policy).build();
        assert_config_error(built, code, &format!(r#"policy "units": {start}"#));
    }
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
