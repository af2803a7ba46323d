//! Checklist 9, and the answers that no example shows: bodies, HEAD, a missing key, a wrongly
//! assembled application.

use http::{Method, StatusCode};
use proptest::prelude::*;
use tower_throttle::{OnStoreFailure, Policy, TokenBucket, key};

use crate::support::web::{
    Answer, Down, api, ask, cost_in, get, layer_of, layer_with, plain, request,
};

/// Asserts what all answers of the layer itself have in common.
#[track_caller]
fn assert_problem(answer: &Answer) -> serde_json::Value {
    assert_eq!(answer.field("cache-control").unwrap(), "no-store");
    assert_eq!(
        answer.field("content-type").unwrap(),
        "application/problem+json"
    );
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["status"], answer.status.as_u16());
    assert!(body["type"].is_string() && body["title"].is_string());
    body
}

proptest! {
    #[test]
    fn bodies_are_json_whatever_the_names(
        first in "[ -~]{1,64}",
        second in r#"["\\/{}\[\], -]{1,64}"#,
        cost in prop_oneof![Just(1_u64), Just(250)],
    ) {
        prop_assume!(first != second);
        let policy = |name: &str| -> Policy {
            Policy::new(name, TokenBucket::per_minute(1)).shared().cost_by(cost_in("cost"))
        };
        let (layer, _) = layer_of([policy(&first), policy(&second)]);
        ask(&layer, plain());
        let answer = ask(&layer, get([("cost", cost)]));
        let body = assert_problem(&answer);
        prop_assert_eq!(&body["violated-policies"], &serde_json::json!([first, second]));
        if cost == 250 {
            let sentence = |name| format!("Cost 250 exceeds policy \"{name}\" (1).");
            let wanted = format!("{} {}", sentence(first), sentence(second));
            prop_assert_eq!(&body["detail"], &serde_json::json!(wanted));
        }
    }
}

fn by_header() -> Policy {
    Policy::new("api", TokenBucket::per_minute(100)).key(key::header("x-api-key"))
}

#[test]
fn a_missing_key_is_answered_with_403() {
    let (layer, _) = layer_of([by_header()]);
    let answer = ask(&layer, plain());
    assert_problem(&answer);
    answer.assert_is(
        r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store

{"type":"about:blank","title":"Forbidden","status":403,"detail":"Missing client key."}"#,
    );
    assert!(answer.decision.is_none());
}

#[test]
fn a_wrongly_assembled_application_answers_500_without_details() {
    let (layer, _) = layer_of([Policy::new("api", TokenBucket::per_minute(100))]);
    let answer = ask(&layer, plain());
    assert_problem(&answer);
    answer.assert_is(
        r#"HTTP/1.1 500 Internal Server Error
Content-Type: application/problem+json
Cache-Control: no-store

{"type":"about:blank","title":"Internal Server Error","status":500}"#,
    );
}

#[test]
fn every_answer_to_head_has_the_fields_of_get_and_no_body() {
    let layers = || {
        let builder =
            |policy| layer_with([policy], |set| set.on_store_failure(OnStoreFailure::Deny));
        let full = builder(api()).0;
        ask(&full, get([("api", 100)]));
        [
            (full, 1, StatusCode::TOO_MANY_REQUESTS),
            (builder(api()).0, 250, StatusCode::FORBIDDEN),
            (builder(by_header()).0, 1, StatusCode::FORBIDDEN),
            (
                builder(api()).0.store(Down),
                1,
                StatusCode::SERVICE_UNAVAILABLE,
            ),
            (
                builder(TokenBucket::per_second(1).into()).0,
                1,
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
        ]
    };
    for (layer, cost, status) in layers() {
        let get = ask(&layer, get([("api", cost)]));
        let head = ask(&layer, request(Method::HEAD, [("api", cost)]));
        assert_eq!((get.status, head.status), (status, status));
        assert!(head.body.is_empty());
        let mut fields = head.headers.clone();
        let length = fields.remove("content-length").unwrap();
        assert_eq!(length, get.body.len().to_string());
        assert_eq!(fields, get.headers);
    }
}
