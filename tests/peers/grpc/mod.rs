//! Section 5 of the standards page: denials that gRPC clients read as the
//! result of their call. A real client, over HTTP/2 on the loopback.

mod auth_gate;
pub(crate) mod calls;
mod detection;
mod hook;
mod outbound;
mod own_server;
mod settled;
mod web_client;

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tonic::{Code, Status};
use tower_throttle::{FixedWindow, HeaderFormat, OnStoreFailure, Policy, TokenBucket, key};

use self::calls::{call, connect, metadata, one_in_12_seconds, retry_delay, serve};
use crate::support::web::{Answer, Down, ask, cost_in, layer_of, layer_with};
use crate::wire::http2;

fn grpc_request(kind: &str, cost: u64) -> Request<Full<Bytes>> {
    let request = Request::post("/").version(Version::HTTP_2);
    let request = request.header("cost", cost).header("content-type", kind);
    request.body(Full::default()).unwrap()
}

#[test]
fn the_example_is_answered_byte_for_byte() {
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| {
        builder.headers(HeaderFormat::None)
    });
    ask(&layer, grpc_request("application/grpc", 1));
    ask(&layer, grpc_request("application/grpc", 1)).assert_is(
        "HTTP/1.1 200 OK
content-type: application/grpc
grpc-status: 8
grpc-message: rate limit exceeded
grpc-retry-pushback-ms: 12000
grpc-status-details-bin: CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIDA",
    );
}

#[tokio::test]
async fn a_client_reads_resource_exhausted_with_the_time_to_wait() {
    let (layer, clock) = layer_of([one_in_12_seconds()]);
    let (address, calls) = serve(layer).await;
    let mut client = connect(&address).await;
    assert_eq!(call(&mut client, 1).await.unwrap(), "hello");

    let status = call(&mut client, 1).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    assert_eq!(retry_delay(&status), Some(Duration::from_secs(12)));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("12000"));
    assert_eq!(metadata(&status, "ratelimit"), Some(r#""api";r=0;t=12"#));
    let policy = metadata(&status, "ratelimit-policy");
    assert_eq!(policy, Some(r#""api";q=1;w=12"#));
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    // The wait is exact to the millisecond, rounded up. After it, the call succeeds on the same
    // connection.
    clock.advance(Duration::from_micros(11_999_001));
    let status = call(&mut client, 1).await.unwrap_err();
    assert_eq!(retry_delay(&status), Some(Duration::from_millis(1)));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("1"));
    clock.advance(Duration::from_millis(1));
    assert_eq!(call(&mut client, 1).await.unwrap(), "hello");
}

/// A missing key, an application without peer addresses, and a name with signs that are encoded.
#[tokio::test]
async fn each_denial_has_a_status_of_its_own() {
    let by_header = TokenBucket::per_second(1);
    let by_header = Policy::new("api", by_header).key(key::header("x-api-key"));
    let name = r#"50% "off" %41 \ "#;
    let costly = Policy::new(name, TokenBucket::per_second(1)).shared();
    let exceeds = format!("Cost 9 exceeds policy \"{name}\" (1).");
    let by_peer = Policy::new("api", TokenBucket::per_second(1));
    let costly = costly.cost_by(cost_in("cost"));
    for (policy, code, message) in [
        (by_header, Code::PermissionDenied, None),
        (by_peer, Code::Internal, Some("internal error")),
        (costly, Code::ResourceExhausted, Some(&*exceeds)),
    ] {
        let (address, calls) = serve(layer_of([policy]).0).await;
        let status = call(&mut connect(&address).await, 9).await.unwrap_err();
        assert_eq!(status.code(), code);
        assert!(message.is_none_or(|message| status.message() == message));
        assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("-1"));
        assert_eq!(retry_delay(&status), None);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_unavailable() {
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| {
        builder.on_store_failure(OnStoreFailure::Deny)
    });
    let (address, calls) = serve(layer.store(Down)).await;
    let status = call(&mut connect(&address).await, 1).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "service unavailable");
    assert_eq!(retry_delay(&status), Some(Duration::from_secs(5)));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("5000"));
    assert_eq!(metadata(&status, "ratelimit"), None);
    assert!(!format!("{status:?}").contains("redis"));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_denial_is_one_block_of_header_fields_and_the_end() {
    let (layer, _) = layer_of([one_in_12_seconds()]);
    let (address, _) = serve(layer).await;
    let mut client = http2(address.parse().unwrap()).await;
    let mut request = grpc_request("application/grpc", 250);
    *request.uri_mut() = format!("http://{address}/test.Service/Method")
        .parse()
        .unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.body().is_end_stream());
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers(), None);
    assert!(body.to_bytes().is_empty());
}

/// Returns the status that a client reads from an answer in memory.
fn status_of(answer: &Answer) -> Status {
    Status::from_header_map(&answer.headers).unwrap()
}

#[test]
fn jitter_only_adds_to_the_pushback_and_both_fields_agree() {
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| {
        builder.retry_after_jitter(Duration::from_secs(10))
    });
    ask(&layer, grpc_request("application/grpc", 1));
    for _ in 0..200 {
        let answer = ask(&layer, grpc_request("application/grpc", 1));
        let pushback_ms = answer.number("grpc-retry-pushback-ms");
        assert!((12_000..=22_000).contains(&pushback_ms));
        let delay = retry_delay(&status_of(&answer));
        assert_eq!(delay, Some(Duration::from_millis(pushback_ms)));
        assert_eq!(answer.field("ratelimit").unwrap(), r#""api";r=0;t=12"#);
    }
}

/// A pushback has 32 bits, and `RetryInfo` has more.
#[test]
fn long_waits_stay_within_the_32_bits_of_a_pushback() {
    for (days, pushback_ms) in [(20, 20 * 86_400_000), (100, 2_147_483_647)] {
        let wait = Duration::from_secs(days * 86_400);
        let (layer, _) = layer_of([Policy::new("api", FixedWindow::new(1, wait)).shared()]);
        ask(&layer, grpc_request("application/grpc", 1));
        let answer = ask(&layer, grpc_request("application/grpc", 1));
        assert_eq!(answer.number("grpc-retry-pushback-ms"), pushback_ms);
        assert_eq!(retry_delay(&status_of(&answer)), Some(wait));
    }
}
