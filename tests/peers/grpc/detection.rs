//! Which requests are denied with a gRPC status.

use http::{Method, Request, StatusCode, Version};
use http_body_util::Full;
use tower_throttle::GrpcDenials;

use super::calls::one_in_12_seconds;
use crate::support::web::{Answer, ask, layer_with, plain};

const VERSIONS: [Version; 3] = [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3];
const METHODS: [Method; 4] = [Method::POST, Method::GET, Method::HEAD, Method::PUT];
const GRPC: &str = "application/grpc | application/grpc+proto | application/grpc+json \
    | application/grpc;charset=utf-8 | application/grpc ; charset=x | Application/GRPC+Proto";
const GRPC_WEB: &str = "application/grpc-web | application/grpc-web+proto \
    | application/grpc-web; charset=x | application/grpc-web-text | application/grpc-web-text+proto";
const OTHERS: &str = "application/grpcfoo | application/grpc-foo | application/grpc foo \
    | application/grpc +proto | application/grpc-webfoo | application/grpc-web-textual \
    | application/grp | application/json; application/grpc | application/json \
    | text/application/grpc";

fn is_in(list: &str, kind: &str) -> bool {
    list.split(" | ").any(|one| one == kind)
}

/// Calls `check` for each kind of request, with the answer that it gets under a setting.
fn denied(setting: GrpcDenials, mut check: impl FnMut(&Method, Version, &str, Answer)) {
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| {
        builder.grpc_denials(setting)
    });
    ask(&layer, plain());
    for method in METHODS {
        for version in VERSIONS {
            for kind in [GRPC, GRPC_WEB, OTHERS].join(" | ").split(" | ") {
                let request = Request::builder().method(method.clone()).version(version);
                let request = request.header("content-type", kind);
                let answer = ask(&layer, request.body(Full::default()).unwrap());
                check(&method, version, kind, answer);
            }
        }
    }
}

#[track_caller]
fn assert_is_grpc(answer: &Answer, content_type: &str) {
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.field("content-type").unwrap(), content_type);
    assert_eq!(answer.field("grpc-status").unwrap(), "8");
    assert_eq!(answer.field("grpc-message").unwrap(), "rate limit exceeded");
    assert_eq!(answer.field("grpc-retry-pushback-ms").unwrap(), "12000");
    assert!(answer.field("grpc-status-details-bin").is_some());
    assert_eq!(answer.field("ratelimit").unwrap(), r#""api";r=0;t=12"#);
    assert_eq!(answer.field("retry-after"), None);
    assert!(answer.body.is_empty());
}

#[track_caller]
fn assert_is_http(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    let kind = answer.field("content-type").unwrap();
    assert_eq!(kind, "application/problem+json");
    assert_eq!(answer.field("grpc-status"), None);
    assert_eq!(answer.field("cache-control").unwrap(), "no-store");
    assert_eq!(answer.number("retry-after"), 12);
}

#[test]
fn only_a_post_over_http2_is_a_grpc_call_by_default() {
    denied(GrpcDenials::default(), |method, version, kind, answer| {
        let is_call = method == Method::POST && version >= Version::HTTP_2;
        if is_call && is_in(GRPC, kind) {
            assert_is_grpc(&answer, "application/grpc");
            assert_eq!(answer.field("cache-control"), None);
        } else {
            assert_is_http(&answer);
        }
    });
}

#[test]
fn grpc_web_is_answered_in_kind_by_choice() {
    denied(GrpcDenials::AutoWithWeb, |method, _, kind, answer| {
        if method == Method::POST && is_in(GRPC, kind) {
            assert_is_grpc(&answer, "application/grpc");
        } else if method == Method::POST && is_in(GRPC_WEB, kind) {
            assert_is_grpc(&answer, kind);
        } else {
            assert_is_http(&answer);
        }
    });
}

#[test]
fn every_denial_has_a_grpc_status_by_choice_and_only_a_post_may_be_cached() {
    denied(GrpcDenials::Always, |method, _, kind, answer| {
        let is_web = is_in(GRPC_WEB, kind);
        assert_is_grpc(&answer, if is_web { kind } else { "application/grpc" });
        let cache_control = answer.field("cache-control");
        let wanted = (method != Method::POST).then_some("no-store");
        assert_eq!(cache_control.as_deref(), wanted);
    });
}

#[test]
fn no_denial_has_a_grpc_status_by_choice() {
    denied(GrpcDenials::Never, |_, _, _, answer| {
        assert_is_http(&answer)
    });
}
