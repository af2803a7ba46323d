//! Calls that are charged by their status, which is in their trailers, or in their headers if
//! there is no message. With a real client, over HTTP/2.

use axum::{Router, body::Body};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use tonic::Code;
use tower_throttle::{FixedWindow, Policy, RateLimitLayer, RequestHead, settle};

use super::calls::{call, connect};
use crate::support::{
    eventually_async,
    web::{layer_of, plain},
};

fn failures() -> RateLimitLayer {
    let policy = Policy::new("failures", FixedWindow::per_hour(3)).shared();
    let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
    layer
}

/// Returns how many units the only policy has left.
async fn left_of(layer: &RateLimitLayer) -> u64 {
    let buckets = layer.buckets(&RequestHead::from(&plain())).expect("keys");
    let decision = buckets.peek().await.expect("a decision");
    decision.policies().map(|policy| policy.remaining()).sum()
}

fn grpc_response<B>(body: B) -> Response<B> {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn status_field(code: i32) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from(code));
    fields
}

const MESSAGE: &[u8] = b"\0\0\0\0\x05hello";

/// Where a method sends its status.
#[derive(Clone, Copy, Debug)]
enum StatusIn {
    /// A response without a message, "Trailers-Only".
    Headers,
    /// Behind a message.
    Trailers,
}

fn respond(code: i32, place: StatusIn) -> Response<Body> {
    match place {
        StatusIn::Headers => {
            let mut response = grpc_response(Body::empty());
            response.headers_mut().extend(status_field(code));
            response
        }
        StatusIn::Trailers => {
            let trailers = std::future::ready(Some(Ok(status_field(code))));
            grpc_response(Body::new(Full::from(MESSAGE).with_trailers(trailers)))
        }
    }
}

/// Serves a method whose status is the cost that the request names.
async fn serve(layer: RateLimitLayer, place: StatusIn) -> String {
    let method = async move |headers: HeaderMap| {
        let code = headers["cost"].to_str().expect("text").parse();
        respond(code.expect("a number"), place)
    };
    let app = Router::new().fallback(method).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address.to_string()
}

#[tokio::test]
async fn calls_that_fail_are_charged_and_the_others_are_free() {
    for place in [StatusIn::Headers, StatusIn::Trailers] {
        let layer = failures();
        let mut client = connect(&serve(layer.clone(), place).await).await;
        let mut remaining = 3;
        for code in [0, 5, 0, 16, 0, 2] {
            let result = call(&mut client, code).await;
            match (code, place) {
                (0, StatusIn::Trailers) => assert_eq!(result.unwrap(), "hello"),
                // A success without a message is an error of another kind.
                (0, StatusIn::Headers) => assert!(result.is_err()),
                _ => assert_eq!(result.unwrap_err().code(), Code::from(code as i32)),
            }
            remaining -= u64::from(code != 0);
            let settled = async || left_of(&layer).await == remaining;
            eventually_async("the settlement", settled).await;
        }
        let denied = call(&mut client, 0).await.unwrap_err();
        assert_eq!(denied.code(), Code::ResourceExhausted, "{place:?}");
        assert_eq!(left_of(&layer).await, 0);
    }
}
