//! `on_denied` decides on gRPC calls, too.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use tonic::Code;
use tower_throttle::{DenialReason, RateLimitLayer};

use super::{
    calls::{call, connect, metadata, one_in_12_seconds, serve},
    grpc_request,
};
use crate::support::web::{ask, get, layer_with};

/// Returns a layer with a hook, which denies its next request.
fn hooked<F>(hook: F) -> RateLimitLayer
where
    F: Fn(tower_throttle::Denied<'_>) -> Response<Bytes> + Send + Sync + 'static,
{
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| builder.on_denied(hook));
    ask(&layer, grpc_request("application/grpc", 1));
    layer
}

#[test]
fn the_hook_recognizes_grpc_calls_and_sees_the_same_denial() {
    let layer = hooked(|denied| {
        let policies: Vec<_> = denied.policy_names().collect();
        assert_eq!(policies, ["api"]);
        assert_eq!(denied.reason(), DenialReason::QuotaExceeded);
        assert_eq!(denied.status(), 429);
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)));
        let is_grpc = HeaderValue::from(u16::from(denied.is_grpc()));
        let mut response = denied.into_response();
        response.headers_mut().insert("is-grpc", is_grpc);
        response
    });
    let answer = ask(&layer, grpc_request("application/grpc", 1));
    assert_eq!((answer.status.as_u16(), answer.number("is-grpc")), (200, 1));
    let answer = ask(&layer, get([("cost", 1)]));
    assert_eq!((answer.status.as_u16(), answer.number("is-grpc")), (429, 0));
}

#[tokio::test]
async fn a_status_of_its_own_reaches_the_client() {
    let layer = hooked(|_| tonic::Status::aborted("not now").into_http::<Bytes>());
    let (address, _) = serve(layer).await;
    let status = call(&mut connect(&address).await, 1).await.unwrap_err();
    let found = (status.code(), status.message());
    assert_eq!(found, (Code::Aborted, "not now"));
    assert_eq!(metadata(&status, "ratelimit"), Some(r#""api";r=0;t=12"#));
    assert_eq!(metadata(&status, "retry-after"), None);
}

#[test]
fn plain_http_from_the_hook_gets_the_fields_of_plain_http() {
    let layer = hooked(|denied| {
        let mut response = Response::new(Bytes::from("later"));
        *response.status_mut() = denied.status();
        response
    });
    ask(&layer, grpc_request("application/grpc", 1)).assert_is(
        "HTTP/1.1 429 Too Many Requests
Cache-Control: no-store
Retry-After: 12
RateLimit-Policy: \"api\";q=1;w=12
RateLimit: \"api\";r=0;t=12

later",
    );
}
