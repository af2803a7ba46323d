//! Checklist 16: `CorsLayer` outside the limiter, and inside.

use bytes::Bytes;
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceBuilder};
use tower_http::cors::{Any, CorsLayer};
use tower_throttle::{Policy, RateLimitLayer, RequestHead, TokenBucket};

use crate::support::web::{Answer, ask_service, get, hello, layer_of, request};

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods(Any)
        .expose_headers(
            ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static),
        )
}

fn one_a_minute() -> Policy {
    Policy::new("api", TokenBucket::per_minute(1)).shared()
}

fn preflight() -> Request<Full<Bytes>> {
    request(
        Method::OPTIONS,
        [
            ("origin", "https://app.example"),
            ("access-control-request-method", "PUT"),
        ],
    )
}

fn from_browser() -> Request<Full<Bytes>> {
    get([("origin", "https://app.example")])
}

#[track_caller]
fn ask_cors_outside(limit: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    let service = ServiceBuilder::new()
        .layer(cors())
        .layer(limit.clone())
        .service_fn(hello);
    ask_service(service, request)
}

#[track_caller]
fn ask_cors_inside(limit: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    let service = cors().layer(tower::service_fn(hello));
    ask_service(limit.layer(service), request)
}

#[test]
fn outside_it_answers_preflights_and_they_cost_nothing() {
    let (limit, _) = layer_of([one_a_minute()]);
    for _ in 0..3 {
        let answer = ask_cors_outside(&limit, preflight());
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("access-control-allow-origin").unwrap(), "*");
        assert_eq!(answer.field("ratelimit"), None);
    }
    assert_eq!(ask_cors_outside(&limit, from_browser()).text(), "hello");
}

#[test]
fn outside_it_lets_scripts_read_a_denial_and_its_fields() {
    let (limit, _) = layer_of([one_a_minute()]);
    ask_cors_outside(&limit, from_browser());
    let denied = ask_cors_outside(&limit, from_browser());
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.field("access-control-allow-origin").unwrap(), "*");
    assert_eq!(
        denied.field("access-control-expose-headers").unwrap(),
        "ratelimit,ratelimit-policy,retry-after"
    );
    assert_eq!(denied.number("retry-after"), 60);
    assert_eq!(denied.field("ratelimit").unwrap(), r#""api";r=0;t=60"#);
    // A preflight request is still answered.
    let answer = ask_cors_outside(&limit, preflight());
    assert_eq!(answer.status, StatusCode::OK);
}

#[test]
fn inside_preflights_are_limited_too_and_denials_cannot_be_read() {
    let (limit, _) = layer_of([one_a_minute()]);
    let answer = ask_cors_inside(&limit, preflight());
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.field("ratelimit").unwrap(), r#""api";r=0;t=60"#);
    for request in [preflight(), from_browser()] {
        let denied = ask_cors_inside(&limit, request);
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(denied.field("access-control-allow-origin"), None);
    }
}

/// What the standards page advises if the limiter must be outside.
fn is_no_preflight(head: &RequestHead<'_>) -> bool {
    let fields = head.headers();
    head.method() != Method::OPTIONS
        || !fields.contains_key("origin")
        || !fields.contains_key("access-control-request-method")
}

#[test]
fn inside_preflights_can_be_left_out_by_a_policy() {
    let (limit, _) = layer_of([one_a_minute().when(is_no_preflight)]);
    ask_cors_inside(&limit, from_browser());
    for _ in 0..3 {
        let answer = ask_cors_inside(&limit, preflight());
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("access-control-allow-origin").unwrap(), "*");
        assert_eq!(answer.field("ratelimit"), None);
    }
    let plain_options = request::<String, 0>(Method::OPTIONS, []);
    let denied = ask_cors_inside(&limit, plain_options);
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
}
