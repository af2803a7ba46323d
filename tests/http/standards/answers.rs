//! Checklist 9, and the answers that no example shows: bodies, HEAD, a missing key, a wrongly
//! assembled application.

use proptest::prelude::*;

use crate::prelude::*;

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
        prop_assert_eq!(answer.field("content-type").unwrap(), "application/problem+json");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        prop_assert_eq!(&body["status"], answer.status.as_u16());
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

fn by_peer() -> Policy {
    Policy::new("api", TokenBucket::per_minute(100))
}

#[test]
fn a_missing_key_is_answered_with_403_and_a_missing_layer_with_500_without_details() {
    for (policy, expected) in [
        (
            by_header(),
            r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store

{"type":"about:blank","title":"Forbidden","status":403,"detail":"Missing client key."}"#,
        ),
        (
            by_peer(),
            r#"HTTP/1.1 500 Internal Server Error
Content-Type: application/problem+json
Cache-Control: no-store

{"type":"about:blank","title":"Internal Server Error","status":500}"#,
        ),
    ] {
        let answer = ask(&layer_of([policy]).0, plain());
        answer.assert_is(expected);
        assert!(answer.decision.is_none());
    }
}

#[test]
fn every_answer_to_head_has_the_fields_of_get_and_no_body() {
    for (reason, layer, cost) in every_reason(|builder| builder) {
        let get = ask(&layer, get([("api", cost)]));
        let head = ask(&layer, request(Method::HEAD, [("api", cost)]));
        assert_eq!((get.reason, head.reason), (Some(reason), Some(reason)));
        assert_eq!(get.status, head.status);
        assert!(head.body.is_empty());
        let mut fields = head.headers.clone();
        let length = fields.remove("content-length").unwrap();
        assert_eq!(length, get.body.len().to_string());
        assert_eq!(fields, get.headers);
    }
}
