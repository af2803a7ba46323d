//! What is an error.

use tower_throttle::LimiterBuilder;

use super::minutes;
use crate::support::prelude::*;

fn bans() -> Policy {
    Policy::new("bans", Penalty::after(3))
}

fn code(builder: LimiterBuilder) -> String {
    builder.build().expect_err("an error").code().to_owned()
}

fn code_of(policy: Policy) -> String {
    code(Limiter::builder().policy(policy))
}

#[test]
fn impossible_numbers_are_errors_that_say_what_to_change() {
    let penalty = |penalty| Policy::new("bans", penalty);
    let ms = Duration::from_micros(1_500);
    for (wrong, code) in [
        (Penalty::after(0), "zero"),
        (Penalty::after(1 << 53), "limit-too-large"),
        (Penalty::after(1).within(Duration::ZERO), "zero-period"),
        (Penalty::after(1).lasting(Duration::ZERO), "zero-period"),
        (
            Penalty::after(1).within(ms),
            "window-not-whole-milliseconds",
        ),
        (
            Penalty::after(1).lasting(Duration::from_secs(u64::MAX)),
            "window-too-long",
        ),
        (
            Penalty::after(1).doubling_up_to(minutes(9)),
            "longest-ban-too-short",
        ),
        (
            Penalty::after(1).forgiven_after(minutes(9)),
            "nothing-to-forgive",
        ),
        (
            Penalty::after(1).doubling_up_to(Duration::from_secs(u64::MAX)),
            "window-too-long",
        ),
        (
            Penalty::after(1)
                .doubling_up_to(minutes(60))
                .forgiven_after(Duration::ZERO),
            "zero-period",
        ),
    ] {
        assert_eq!(code_of(penalty(wrong)), code, "{wrong:?}");
    }
    let error = Limiter::builder().policy(penalty(Penalty::after(1).doubling_up_to(minutes(9))));
    let said = error.build().expect_err("an error").to_string();
    assert_eq!(
        said,
        "policy \"bans\": `doubling_up_to(540s)` is shorter than the first ban, `lasting(600s)`; raise it, or drop it"
    );
}

#[test]
fn a_penalty_has_no_cost_no_lease_no_debt_and_no_hold() {
    assert_eq!(code_of(bans().cost(1)), "cost-of-penalty");
    assert_eq!(code_of(bans().lease()), "cannot-lease");
    assert_eq!(code_of(bans().max_debt(1)), "debt-too-large");
    assert_eq!(code_of(bans().hold_for(minutes(1))), "cannot-hold");
    let layer = RateLimitLayer::builder().policy(bans().cost_by(|_| 2));
    let error = layer.build().expect_err("an error");
    assert_eq!(error.code(), "cost-of-penalty");
}

#[test]
fn denials_are_strikes_only_where_there_can_be_some() {
    let api = || Policy::new("api", TokenBucket::per_second(1));
    let striking = || bans().strike_on_denial();
    let both = |other: Policy| Limiter::builder().policy(other).policy(striking());
    assert!(both(api()).build().is_ok());
    assert_eq!(code_of(striking()), "cannot-strike");
    assert_eq!(code(both(api().shadow())), "cannot-strike");
    assert_eq!(code_of(api().strike_on_denial()), "cannot-strike");
    let shadow = Limiter::builder().policy(api()).policy(striking().shadow());
    assert_eq!(code(shadow), "cannot-strike");
    assert_eq!(code(both(api()).shadow_all()), "cannot-strike");
    let layer = RateLimitLayer::builder().policy(api()).policy(striking());
    assert!(layer.clone().build().is_ok());
    let waiting = layer.wait_up_to(minutes(1)).build();
    assert_eq!(waiting.expect_err("an error").code(), "cannot-strike");
}

#[tokio::test]
async fn strikes_and_bans_need_a_penalty_and_units_another_quota() {
    let day = Limiter::new(MemoryStore::new(), FixedWindow::per_day(5));
    let error = day.strike("ann", 1).await.expect_err("no penalty");
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(
        error.to_string(),
        "no policy is a `Penalty`; add one to ban callers"
    );
    let error = day.ban("ann", minutes(1)).await.expect_err("no penalty");
    assert!(error.is_unsupported(), "{error}");

    let bans = Limiter::new(MemoryStore::new(), bans());
    for error in [
        bans.take_up_to("ann", 1).await.expect_err("no units"),
        bans.debit("ann", 1).await.expect_err("no units"),
        bans.credit("ann", 1).await.expect_err("no units"),
    ] {
        assert!(error.is_unsupported(), "{error}");
    }
    assert!(
        bans.check_n("ann", 5)
            .await
            .expect("a decision")
            .is_allowed()
    );
}
