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

fn code_of(policy: impl Into<Policy>) -> String {
    code(Limiter::builder().policy(policy))
}

#[test]
fn impossible_numbers_are_errors_that_say_what_to_change() {
    let one = Penalty::after(1);
    let too_long = Duration::from_secs(u64::MAX);
    let forgives = one.doubling_up_to(minutes(60));
    for (wrong, code) in [
        (Penalty::after(0), "zero"),
        (Penalty::after(1 << 53), "limit-too-large"),
        (one.within(Duration::ZERO), "zero-period"),
        (one.lasting(Duration::ZERO), "zero-period"),
        (forgives.forgiven_after(Duration::ZERO), "zero-period"),
        (
            one.within(Duration::from_micros(1_500)),
            "window-not-whole-milliseconds",
        ),
        (one.lasting(too_long), "window-too-long"),
        (one.doubling_up_to(too_long), "window-too-long"),
        (one.doubling_up_to(minutes(9)), "longest-ban-too-short"),
        (one.forgiven_after(minutes(9)), "nothing-to-forgive"),
    ] {
        assert_eq!(code_of(wrong), code, "{wrong:?}");
    }
    let error = Policy::new("bans", one.doubling_up_to(minutes(9)));
    let error = Limiter::builder().policy(error).build();
    assert_eq!(
        error.expect_err("an error").to_string(),
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
    let both = |one: Policy, other: Policy| Limiter::builder().policy(one).policy(other);
    assert!(both(api(), striking()).build().is_ok());
    for wrong in [
        Limiter::builder().policy(striking()),
        Limiter::builder().policy(api().strike_on_denial()),
        both(api().shadow(), striking()),
        both(api(), striking().shadow()),
        both(api(), striking()).shadow_all(),
    ] {
        assert_eq!(code(wrong), "cannot-strike");
    }
    let layer = RateLimitLayer::builder().policy(api()).policy(striking());
    assert!(layer.clone().build().is_ok());
    let waiting = layer.wait_up_to(minutes(1)).build();
    assert_eq!(waiting.expect_err("an error").code(), "cannot-strike");
}

#[tokio::test]
async fn strikes_and_bans_need_a_penalty_and_units_another_quota() {
    let day = Limiter::new(MemoryStore::new(), FixedWindow::per_day(5));
    let bans = Limiter::new(MemoryStore::new(), bans());
    let unsupported = [
        day.strike("ann", 1).await.expect_err("no penalty"),
        day.ban("ann", minutes(1)).await.expect_err("no penalty"),
        bans.take_up_to("ann", 1).await.expect_err("no units"),
        bans.debit("ann", 1).await.expect_err("no units"),
        bans.credit("ann", 1).await.expect_err("no units"),
    ];
    assert!(unsupported.iter().all(StoreError::is_unsupported));
    let said = unsupported[0].to_string();
    assert_eq!(said, "no policy is a `Penalty`; add one to ban callers");
    let decision = bans.check_n("ann", 5).await.expect("a decision");
    assert!(decision.is_allowed());
}
