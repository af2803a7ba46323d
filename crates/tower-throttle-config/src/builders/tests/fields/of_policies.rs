//! Fields of `[[policy]]`.

use super::{Case, THREE, api, one};
use crate::builders::tests::world::{half, size, tenant, text};
use tower_throttle::{OnMissingKey, OnStoreFailure, Penalty, Policy, TokenBucket, key, settle};

fn tiers(name: Option<&str>) -> tower_throttle::Quota {
    let quota = match name {
        Some("paid") => TokenBucket::per_minute(9),
        _ => TokenBucket::per_minute(2),
    };
    quota.try_into().expect("a quota")
}

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    ("policy.name", THREE, r#"policy = [{ name = "⟦api¦web⟧", quota = "2 per minute" }]"#, |_| one(api())),
    ("policy.quota", THREE, r#"policy = [{ name = "api", quota = "⟦2¦3⟧ per minute" }]"#, |_| one(api())),
    ("policy.key", "GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=b; GET / x-api-key=b; GET /",
        r#"⟦key = "header:x-api-key"¦⟧"#, |_| one(api().key(key::header("x-api-key")))),
    ("policy.on_missing_key", "GET /; GET / x-tenant=a",
        r#"key = "reader:tenant"⟦, on_missing_key = "skip"¦⟧"#,
        |_| one(api().key(tenant).on_missing_key(OnMissingKey::Skip))),
    ("policy.shared", "GET / 192.0.2.1; GET / 192.0.2.2; GET / 192.0.2.3",
        "⟦shared = true¦⟧", |_| one(api().shared())),
    ("policy.when", "GET /; POST /",
        r#"⟦when = { method = "POST" }¦⟧"#, |_| one(api().when(|head| head.method() == http::Method::POST))),
    ("policy.cost", THREE, "⟦cost = 2¦⟧", |_| one(api().cost(2))),
    ("cost_of_each.by", "GET / x-size=2; GET / x-size=0; GET / x-size=3; GET /",
        r#"cost = ⟦{ by = "size" }¦1⟧"#, |_| one(api().cost_by(size))),
    ("policy.max_debt", "GET / x-cost=100; GET /",
        r#"settle_by = { header = "x-cost" }⟦, max_debt = 3¦⟧"#,
        |_| one(api().settle_by(settle::header("x-cost")).max_debt(3))),
    ("policy.mode", THREE, r#"⟦mode = "shadow"¦⟧"#, |_| one(api().shadow())),
    ("policy.mode", THREE, r#"mode = "⟦enforce¦shadow⟧""#, |_| one(api())),
    ("share.enforce_for",
        "GET / x-api-key=a; GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=b; GET / x-api-key=c; GET / x-api-key=c; GET / x-api-key=d; GET / x-api-key=d",
        r#"policy = [{ name = "api", quota = "1 per minute", key = "header:x-api-key", mode = { enforce_for = ⟦40¦100⟧ } }]"#,
        |_| {
            let policy =
                Policy::new("api", TokenBucket::per_minute(1)).key(key::header("x-api-key"));
            one(policy.enforce_for_percent(40))
        }),
    ("policy.on_store_failure", "GET /",
        r#"⟦on_store_failure = "deny"¦⟧ | store = { reader = "broken" }"#,
        |_| one(api().on_store_failure(OnStoreFailure::Deny))),
    ("policy.settle_by", "GET /; GET /; GET /; GET / respond=404; GET / respond=500; GET /",
        r#"⟦settle_by = "failures"¦⟧"#, |_| one(api().settle_by(settle::failures()))),
    ("settler.status", "GET /; GET / respond=401; GET / respond=403; GET / respond=403",
        "settle_by = { status = [401⟦, 403¦⟧] }", |_| one(api().settle_by(settle::status([401, 403])))),
    ("settler.header", "GET / x-cost=5; GET / x-cost=5; GET /",
        r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { header = "x-⟦cost¦price⟧" } }]"#,
        |_| one(Policy::new("api", TokenBucket::per_minute(9)).settle_by(settle::header("x-cost")))),
    ("settler.pass_on", "GET / x-cost=5",
        r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { header = "x-cost"⟦, pass_on = true¦⟧ } }]"#,
        |_| {
            let policy = Policy::new("api", TokenBucket::per_minute(9));
            one(policy.settle_by(settle::header("x-cost").pass_on()))
        }),
    ("settler.body_bytes", "GET /; GET /; GET /; GET /",
        r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { body_bytes = ⟦2¦5⟧ } }]"#,
        |_| one(Policy::new("api", TokenBucket::per_minute(9)).settle_by(settle::body_bytes(2)))),
    ("settler.reader", "GET /; GET /; GET /; GET /",
        r#"policy = [{ name = "api", quota = "9 per minute", cost = 4, settle_by = ⟦{ reader = "half" }¦"failures"⟧ }]"#,
        |_| one(Policy::new("api", TokenBucket::per_minute(9)).cost(4).settle_by(half))),
    ("policy.strike_on_denial", "GET /; GET /; GET /; GET /; GET /; wait 60; GET /",
        r#"policy = [
            { name = "api", quota = "2 per minute" },
            { name = "stubborn", quota = "penalty after 2 strikes, lasting 1 hour"⟦, strike_on_denial = true¦⟧ },
        ]"#,
        |_| {
            let hour = std::time::Duration::from_secs(3_600);
            let penalty = Penalty::after(2).lasting(hour);
            one(api()).policy(Policy::new("stubborn", penalty).strike_on_denial())
        }),
    ("tiers.by", "GET / x-plan=paid; GET / x-plan=unknown; GET /",
        r#"policy = [{ name = "api", quota = ⟦{ by = "plan", tiers = { free = "2 per minute", paid = "9 per minute" }, otherwise = "free" }¦"2 per minute"⟧ }]"#,
        |_| one(api().quota_by(|head| tiers(text(head, "x-plan"))))),
    ("tiers.tiers", "GET / x-plan=paid; GET / x-plan=free",
        r#"policy = [{ name = "api", quota = { by = "plan", tiers = { free = "2 per minute", paid = "⟦9¦8⟧ per minute" }, otherwise = "free" } }]"#,
        |_| one(api().quota_by(|head| tiers(text(head, "x-plan"))))),
    ("tiers.otherwise", "GET /; GET / x-plan=unknown",
        r#"policy = [{ name = "api", quota = { by = "plan", tiers = { free = "2 per minute", paid = "9 per minute" }, otherwise = "⟦free¦paid⟧" } }]"#,
        |_| one(api().quota_by(|head| tiers(text(head, "x-plan"))))),
];
