//! Fields of `[layer.NAME]`.

use std::{sync::Arc, time::Duration};

use super::Case;
use crate::builders::tests::world::{not_found, page, user};
use tower_throttle::{
    FixedWindow, GrpcDenials, HeaderFormat, Lists, OnStoreFailure, Policy, RateLimitLayer,
    RateLimitLayerBuilder, TokenBucket, key,
};

fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(2))
}

fn web() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().name("web").policy(api())
}

const THREE: &str = "GET /; GET /; GET /; wait 30; GET /";

/// The file of a layer with one policy.
macro_rules! web {
    ($field:literal) => {
        concat!(
            "policy = [{ name = \"api\", quota = \"2 per minute\" }]\n[layer.web]\n",
            $field
        )
    };
}

pub(super) const CASES: &[Case] = &[
    Case {
        field: "layer.policies",
        file: r#"
            policy = [{ name = "day", quota = "fixed window of 3 per day" }, { name = "api", quota = "2 per minute" }]
            [layer.web]
            ⟦policies = ["api", "day"]¦⟧"#,
        code: |_| web().policy(Policy::new("day", FixedWindow::per_day(3))),
        requests: THREE,
    },
    Case {
        field: "layer.lists",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            lists = { deny_ips = ["203.0.113.0/24"] }
            [layer.web]
            ⟦¦lists = false⟧"#,
        code: |_| {
            let lists = Lists::new().deny_ips(["203.0.113.0/24"]).expect("lists");
            web().lists(lists.client_address(key::peer()))
        },
        requests: "GET /; GET / 192.0.2.1",
    },
    Case {
        field: "layer.on_store_failure",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            [store]
            reader = "broken"
            [layer.web]
            ⟦on_store_failure = "share of 2"¦⟧"#,
        code: |_| web().on_store_failure(OnStoreFailure::share_of(2)),
        requests: "GET /; GET /; GET /",
    },
    Case {
        field: "layer.on_store_failure",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }]
            [store]
            reader = "broken"
            [layer.web]
            on_store_failure = "⟦allow¦deny⟧""#,
        code: |_| web().on_store_failure(OnStoreFailure::Allow),
        requests: "GET /; GET /; GET /",
    },
    Case {
        field: "layer.shadow_all",
        file: web!("⟦shadow_all = true¦⟧"),
        code: |_| web().shadow_all(),
        requests: THREE,
    },
    Case {
        field: "layer.max_waiting",
        file: web!("wait_up_to = \"1 minute\"\n⟦max_waiting = 0¦⟧"),
        code: |_| web().wait_up_to(Duration::from_secs(60)).max_waiting(0),
        requests: "GET /; GET /; GET /",
    },
    Case {
        field: "layer.wait_up_to",
        file: web!("⟦wait_up_to = \"1 minute\"¦⟧"),
        code: |_| web().wait_up_to(Duration::from_secs(60)),
        requests: "GET /; GET /; GET /",
    },
    Case {
        field: "layer.name",
        file: web!("⟦name = \"front\"¦⟧"),
        code: |_| web().name("front"),
        requests: "GET /",
    },
    Case {
        field: "layer.observe",
        file: web!("⟦observe = \"counter\"¦⟧"),
        code: |world| web().observe(Arc::clone(&world.observed)),
        requests: THREE,
    },
    Case {
        field: "layer.when",
        file: web!("⟦when = { path = \"/api/**\" }¦⟧"),
        code: |_| web().when(|head| head.uri().path().starts_with("/api")),
        requests: "GET /; GET /api; GET /api/a/b",
    },
    Case {
        field: "layer.headers",
        file: web!("⟦headers = \"draft7\"¦⟧"),
        code: |_| web().headers(HeaderFormat::Draft7),
        requests: THREE,
    },
    Case {
        field: "layer.headers",
        file: web!("headers = \"⟦draft6¦draft10⟧\""),
        code: |_| web().headers(HeaderFormat::Draft6),
        requests: THREE,
    },
    Case {
        field: "layer.headers",
        file: web!("headers = \"⟦x_rate_limit_epoch¦none⟧\""),
        code: |_| web().headers(HeaderFormat::XRateLimitEpoch),
        requests: THREE,
    },
    Case {
        field: "layer.headers",
        file: web!("headers = \"⟦x_rate_limit_delta¦x_rate_limit_epoch⟧\""),
        code: |_| web().headers(HeaderFormat::XRateLimitDelta),
        requests: THREE,
    },
    Case {
        field: "layer.headers",
        file: web!("headers = \"⟦none¦draft10⟧\""),
        code: |_| web().headers(HeaderFormat::None),
        requests: THREE,
    },
    Case {
        field: "layer.headers_when",
        file: web!("⟦headers_when = \"not_found\"¦⟧"),
        code: |_| web().headers_when(not_found),
        requests: "GET /; GET / respond=404; GET /",
    },
    Case {
        field: "layer.partition_key_secret",
        file: web!("⟦partition_key_secret = \"s3cret\"¦⟧"),
        code: |_| web().partition_key_secret(b"s3cret"),
        requests: THREE,
    },
    Case {
        field: "layer.retry_after_jitter",
        // A wait of 30 s and a little more is 31 s.
        file: web!("⟦retry_after_jitter = \"900ms\"¦⟧"),
        code: |_| web().retry_after_jitter(Duration::from_millis(900)),
        requests: THREE,
    },
    Case {
        field: "layer.decision_in_extensions",
        file: web!("⟦decision_in_extensions = true¦⟧"),
        code: |_| web().decision_in_extensions(),
        requests: "GET /",
    },
    Case {
        field: "layer.shadow_with_headers",
        file: r#"
            policy = [{ name = "api", quota = "2 per minute" }, { name = "day", quota = "fixed window of 1 per day", mode = "shadow" }]
            [layer.web]
            ⟦shadow_with_headers = true¦⟧"#,
        code: |_| {
            let day = Policy::new("day", FixedWindow::per_day(1)).shadow();
            web().policy(day).shadow_with_headers()
        },
        requests: THREE,
    },
    Case {
        field: "layer.grpc_denials",
        file: web!("⟦grpc_denials = \"never\"¦⟧"),
        code: |_| web().grpc_denials(GrpcDenials::Never),
        requests: "GET /; GET /; POST /a.B/C h2 content-type=application/grpc",
    },
    Case {
        field: "layer.grpc_denials",
        file: web!("grpc_denials = \"⟦always¦auto⟧\""),
        code: |_| web().grpc_denials(GrpcDenials::Always),
        requests: THREE,
    },
    Case {
        field: "layer.grpc_denials",
        file: web!("grpc_denials = \"⟦auto_with_web¦auto⟧\""),
        code: |_| web().grpc_denials(GrpcDenials::AutoWithWeb),
        requests: "GET /; GET /; POST /a.B/C content-type=application/grpc-web",
    },
    Case {
        field: "layer.on_denied",
        file: web!("⟦on_denied = \"page\"¦⟧"),
        code: |_| web().on_denied(page),
        requests: THREE,
    },
    Case {
        field: "layer.name_offenders",
        file: web!("⟦name_offenders = \"user\"¦⟧"),
        code: |_| web().name_offenders(user),
        requests: "GET /; GET /; GET / x-api-key=ann",
    },
];
