//! Fields of `[layer.NAME]`.

use std::{sync::Arc, time::Duration};

use super::{Case, THREE, api, one};
use crate::builders::tests::world::{not_found, page, user};
use tower_throttle::{
    FixedWindow, GrpcDenials, HeaderFormat, Lists, OnStoreFailure, Policy, RateLimitLayerBuilder,
    key,
};

fn web() -> RateLimitLayerBuilder {
    one(api()).name("web")
}

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    ("layer.policies", THREE,
        r#"policy = [{ name = "day", quota = "fixed window of 3 per day" }, { name = "api", quota = "2 per minute" }]
            [layer.web]
            ⟦policies = ["api", "day"]¦⟧"#,
        |_| web().policy(Policy::new("day", FixedWindow::per_day(3)))),
    ("layer.lists", "GET /; GET / 192.0.2.1", r#"⟦¦lists = false⟧ | lists = { deny_ips = ["203.0.113.0/24"] }"#, |_| {
            let lists = Lists::new().deny_ips(["203.0.113.0/24"]).expect("lists");
            web().lists(lists.client_address(key::peer()))
        }),
    ("layer.on_store_failure", "GET /; GET /; GET /",
        r#"⟦on_store_failure = "share of 2"¦⟧ | store = { reader = "broken" }"#,
        |_| web().on_store_failure(OnStoreFailure::share_of(2))),
    ("layer.on_store_failure", "GET /; GET /; GET /",
        r#"on_store_failure = "⟦allow¦deny⟧" | store = { reader = "broken" }"#,
        |_| web().on_store_failure(OnStoreFailure::Allow)),
    ("layer.shadow_all", THREE, "⟦shadow_all = true¦⟧", |_| web().shadow_all()),
    ("layer.max_waiting", "GET /; GET /; GET /",
        "wait_up_to = '1 minute'\n⟦max_waiting = 0¦⟧", |_| web().wait_up_to(Duration::from_secs(60)).max_waiting(0)),
    ("layer.wait_up_to", "GET /; GET /; GET /",
        r#"⟦wait_up_to = "1 minute"¦⟧"#, |_| web().wait_up_to(Duration::from_secs(60))),
    ("layer.name", "GET /", r#"⟦name = "front"¦⟧"#, |_| web().name("front")),
    ("layer.observe", THREE, r#"⟦observe = "counter"¦⟧"#, |world| web().observe(Arc::clone(&world.observed))),
    ("layer.when", "GET /; GET /api; GET /api/a/b",
        r#"⟦when = { path = "/api/**" }¦⟧"#, |_| web().when(|head| head.uri().path().starts_with("/api"))),
    ("layer.headers", THREE, r#"⟦headers = "draft7"¦⟧"#, |_| web().headers(HeaderFormat::Draft7)),
    ("layer.headers_when", "GET /; GET / respond=404; GET /",
        r#"⟦headers_when = "not_found"¦⟧"#, |_| web().headers_when(not_found)),
    ("layer.partition_key_secret", THREE,
        r#"⟦partition_key_secret = "s3cret"¦⟧"#, |_| web().partition_key_secret(b"s3cret")),
    // A wait of 30 s and a little more is 31 s.
    ("layer.retry_after_jitter", THREE,
        r#"⟦retry_after_jitter = "900ms"¦⟧"#, |_| web().retry_after_jitter(Duration::from_millis(900))),
    ("layer.decision_in_extensions", "GET /", "⟦decision_in_extensions = true¦⟧", |_| web().decision_in_extensions()),
    ("layer.shadow_with_headers", THREE,
        r#"policy = [{ name = "api", quota = "2 per minute" }, { name = "day", quota = "fixed window of 1 per day", mode = "shadow" }]
            [layer.web]
            ⟦shadow_with_headers = true¦⟧"#, |_| {
            let day = Policy::new("day", FixedWindow::per_day(1)).shadow();
            web().policy(day).shadow_with_headers()
        }),
    ("layer.grpc_denials", "GET /; GET /; POST /a.B/C h2 content-type=application/grpc",
        r#"⟦grpc_denials = "never"¦⟧"#, |_| web().grpc_denials(GrpcDenials::Never)),
    ("layer.on_denied", THREE, r#"⟦on_denied = "page"¦⟧"#, |_| web().on_denied(page)),
    ("layer.name_offenders", "GET /; GET /; GET / x-api-key=ann",
        r#"⟦name_offenders = "user"¦⟧"#, |_| web().name_offenders(user)),
];
