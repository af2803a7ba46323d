//! Calls that are charged by their status, which is in their trailers, or in their headers if
//! there is no message. With a real client, over HTTP/2.

use axum::Router;
use http::HeaderMap;
use tonic::Code;
use tower_throttle::{FixedWindow, Policy, RateLimitLayer, RequestHead, settle};

use super::calls::{call, connect, listen, response};
use crate::support::{
    eventually_async, left_of,
    web::{layer_of, plain},
};

/// Serves a method whose status is the cost that the request names.
async fn serve(layer: RateLimitLayer, has_message: bool) -> String {
    let method = async move |headers: HeaderMap| {
        let code = headers["cost"].to_str().expect("text").parse();
        response(code.expect("a number"), has_message)
    };
    let app = Router::new().fallback(method).layer(layer);
    listen(app).await.to_string()
}

#[tokio::test]
async fn calls_that_fail_are_charged_and_the_others_are_free() {
    for has_message in [false, true] {
        let policy = Policy::new("failures", FixedWindow::per_hour(3)).shared();
        let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
        let request = plain();
        let buckets = layer.buckets(&RequestHead::from(&request)).expect("keys");
        let mut client = connect(&serve(layer.clone(), has_message).await).await;
        let mut remaining = 3;
        for code in [0, 5, 0, 16, 0, 2] {
            let result = call(&mut client, code).await;
            match (code, has_message) {
                (0, true) => assert_eq!(result.unwrap(), "hello"),
                // A success without a message is an error of another kind.
                (0, false) => assert!(result.is_err()),
                _ => assert_eq!(result.unwrap_err().code(), Code::from(code as i32)),
            }
            remaining -= u64::from(code != 0);
            let left = async || left_of(&buckets.peek().await.expect("a decision"));
            eventually_async("the settlement", async || left().await == [remaining]).await;
        }
        let denied = call(&mut client, 0).await.unwrap_err();
        assert_eq!(denied.code(), Code::ResourceExhausted, "{has_message}");
        let decision = buckets.peek().await.expect("a decision");
        assert_eq!(left_of(&decision), [0]);
    }
}
