//! Fields of `[[policy]]`.

use super::Case;
use crate::builders::tests::world::{half, size, tenant, text};
use tower_throttle::{
    FixedWindow, OnMissingKey, OnStoreFailure, Penalty, Percent, Policy, RateLimitLayer,
    RateLimitLayerBuilder, TokenBucket, key, settle,
};

fn one(policy: Policy) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().policy(policy)
}

fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(2))
}

fn tiers(name: Option<&str>) -> tower_throttle::Quota {
    let quota = match name {
        Some("paid") => TokenBucket::per_minute(9),
        _ => TokenBucket::per_minute(2),
    };
    quota.try_into().expect("a quota")
}

const THREE: &str = "GET /; GET /; GET /; wait 30; GET /";

pub(super) const CASES: &[Case] = &[
    Case {
        field: "policy.name",
        file: r#"policy = [{ name = "⟦api¦web⟧", quota = "2 per minute" }]"#,
        code: |_| one(api()),
        requests: THREE,
    },
    Case {
        field: "policy.quota",
        file: r#"policy = [{ name = "api", quota = "⟦2¦3⟧ per minute" }]"#,
        code: |_| one(api()),
        requests: THREE,
    },
    Case {
        field: "policy.key",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, key = "header:x-api-key"¦⟧ }]"#,
        code: |_| one(api().key(key::header("x-api-key"))),
        requests: "GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=b; GET / x-api-key=b; GET /",
    },
    Case {
        field: "policy.on_missing_key",
        file: r#"policy = [{ name = "api", quota = "2 per minute", key = "reader:tenant"⟦, on_missing_key = "skip"¦⟧ }]"#,
        code: |_| one(api().key(tenant).on_missing_key(OnMissingKey::Skip)),
        requests: "GET /; GET / x-tenant=a",
    },
    Case {
        field: "policy.on_missing_key",
        file: r#"policy = [{ name = "api", quota = "2 per minute", key = "reader:tenant", on_missing_key = "⟦share¦deny⟧" }]"#,
        code: |_| one(api().key(tenant).on_missing_key(OnMissingKey::Share)),
        requests: "GET / 192.0.2.1; GET / 192.0.2.2; GET / 192.0.2.3",
    },
    Case {
        field: "policy.shared",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, shared = true¦⟧ }]"#,
        code: |_| one(api().shared()),
        requests: "GET / 192.0.2.1; GET / 192.0.2.2; GET / 192.0.2.3",
    },
    Case {
        field: "policy.when",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, when = { method = "POST" }¦⟧ }]"#,
        code: |_| one(api().when(|head| head.method() == http::Method::POST)),
        requests: "GET /; POST /",
    },
    Case {
        field: "policy.cost",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, cost = 2¦⟧ }]"#,
        code: |_| one(api().cost(2)),
        requests: THREE,
    },
    Case {
        field: "cost_of_each.by",
        file: r#"policy = [{ name = "api", quota = "2 per minute", cost = ⟦{ by = "size" }¦1⟧ }]"#,
        code: |_| one(api().cost_by(size)),
        requests: "GET / x-size=2; GET / x-size=0; GET / x-size=3; GET /",
    },
    Case {
        field: "policy.max_debt",
        file: r#"policy = [{ name = "api", quota = "2 per minute", settle_by = { header = "x-cost" }⟦, max_debt = 3¦⟧ }]"#,
        code: |_| one(api().settle_by(settle::header("x-cost")).max_debt(3)),
        requests: "GET / x-cost=100; GET /",
    },
    Case {
        field: "policy.mode",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, mode = "shadow"¦⟧ }]"#,
        code: |_| one(api().shadow()),
        requests: THREE,
    },
    Case {
        field: "policy.mode",
        file: r#"policy = [{ name = "api", quota = "2 per minute", mode = "⟦enforce¦shadow⟧" }]"#,
        code: |_| one(api()),
        requests: THREE,
    },
    Case {
        field: "share.enforce_for",
        file: r#"policy = [{ name = "api", quota = "1 per minute", key = "header:x-api-key", mode = { enforce_for = ⟦40¦100⟧ } }]"#,
        code: |_| {
            let policy =
                Policy::new("api", TokenBucket::per_minute(1)).key(key::header("x-api-key"));
            one(policy.enforce_for(Percent::of_keys(40)))
        },
        requests: "GET / x-api-key=a; GET / x-api-key=a; GET / x-api-key=b; GET / x-api-key=b;
            GET / x-api-key=c; GET / x-api-key=c; GET / x-api-key=d; GET / x-api-key=d",
    },
    Case {
        field: "policy.on_store_failure",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute"⟦, on_store_failure = "deny"¦⟧ }]
            [store]
            reader = "broken""#,
        code: |_| one(api().on_store_failure(OnStoreFailure::Deny)),
        requests: "GET /",
    },
    Case {
        field: "policy.settle_by",
        file: r#"policy = [{ name = "api", quota = "2 per minute"⟦, settle_by = "failures"¦⟧ }]"#,
        code: |_| one(api().settle_by(settle::failures())),
        requests: "GET /; GET /; GET /; GET / respond=404; GET / respond=500; GET /",
    },
    Case {
        field: "settler.status",
        file: r#"policy = [{ name = "api", quota = "2 per minute", settle_by = { status = [401⟦, 403¦⟧] } }]"#,
        code: |_| one(api().settle_by(settle::status([401, 403]))),
        requests: "GET /; GET / respond=401; GET / respond=403; GET / respond=403",
    },
    Case {
        field: "settler.header",
        file: r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { header = "x-⟦cost¦price⟧" } }]"#,
        code: |_| {
            one(Policy::new("api", TokenBucket::per_minute(9)).settle_by(settle::header("x-cost")))
        },
        requests: "GET / x-cost=5; GET / x-cost=5; GET /",
    },
    Case {
        field: "settler.pass_on",
        file: r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { header = "x-cost"⟦, pass_on = true¦⟧ } }]"#,
        code: |_| {
            let policy = Policy::new("api", TokenBucket::per_minute(9));
            one(policy.settle_by(settle::header("x-cost").pass_on()))
        },
        requests: "GET / x-cost=5",
    },
    Case {
        field: "settler.body_bytes",
        file: r#"policy = [{ name = "api", quota = "9 per minute", settle_by = { body_bytes = ⟦2¦5⟧ } }]"#,
        code: |_| {
            one(Policy::new("api", TokenBucket::per_minute(9)).settle_by(settle::body_bytes(2)))
        },
        requests: "GET /; GET /; GET /; GET /",
    },
    Case {
        field: "settler.reader",
        file: r#"policy = [{ name = "api", quota = "9 per minute", cost = 4, settle_by = ⟦{ reader = "half" }¦"failures"⟧ }]"#,
        code: |_| {
            one(Policy::new("api", TokenBucket::per_minute(9))
                .cost(4)
                .settle_by(half))
        },
        requests: "GET /; GET /; GET /; GET /",
    },
    Case {
        field: "policy.strike_on_denial",
        file: r#"policy = [
            { name = "api", quota = "2 per minute" },
            { name = "stubborn", quota = "penalty after 2 strikes, lasting 1 hour"⟦, strike_on_denial = true¦⟧ },
        ]"#,
        code: |_| {
            let hour = std::time::Duration::from_secs(3_600);
            let penalty = Penalty::after(2).lasting(hour);
            one(api()).policy(Policy::new("stubborn", penalty).strike_on_denial())
        },
        requests: "GET /; GET /; GET /; GET /; GET /; wait 60; GET /",
    },
    Case {
        field: "tiers.by",
        file: r#"policy = [{ name = "api", quota = ⟦{ by = "plan", tiers = { free = "2 per minute", paid = "9 per minute" }, otherwise = "free" }¦"2 per minute"⟧ }]"#,
        code: |_| one(api().quota_by(|head| tiers(text(head, "x-plan")))),
        requests: "GET / x-plan=paid; GET / x-plan=unknown; GET /",
    },
    Case {
        field: "tiers.tiers",
        file: r#"policy = [{ name = "api", quota = { by = "plan", tiers = { free = "2 per minute", paid = "⟦9¦8⟧ per minute" }, otherwise = "free" } }]"#,
        code: |_| one(api().quota_by(|head| tiers(text(head, "x-plan")))),
        requests: "GET / x-plan=paid; GET / x-plan=free",
    },
    Case {
        field: "tiers.otherwise",
        file: r#"policy = [{ name = "api", quota = { by = "plan", tiers = { free = "2 per minute", paid = "9 per minute" }, otherwise = "⟦free¦paid⟧" } }]"#,
        code: |_| one(api().quota_by(|head| tiers(text(head, "x-plan")))),
        requests: "GET /; GET / x-plan=unknown",
    },
    Case {
        field: "file.policy",
        file: r#"policy = [{ name = "api", quota = "2 per minute" }⟦, { name = "day", quota = "fixed window of 3 per day" }¦⟧]"#,
        code: |_| one(api()).policy(Policy::new("day", FixedWindow::per_day(3))),
        requests: "GET /; wait 60; GET /; wait 60; GET /; wait 60; GET /",
    },
];
