//! Checklist 23, and what an operator reads: no line shows a key, and each mistake is logged
//! once.

use super::MODES;
use crate::{logged::logged, prelude::*};

#[test]
fn a_missing_peer_address_and_a_store_that_fails_are_logged_once_with_what_to_change() {
    let (unwired, _) = layer_of([TokenBucket::per_second(1).into()]);
    for (layer, parts) in [
        (
            unwired,
            "into_make_service_with_connect_info|tower_throttle::wiring|ERROR",
        ),
        (
            layer_of([api()]).0.store(Down),
            "ERROR|tower_throttle::store|unavailable|on_store_failure",
        ),
    ] {
        let log = logged(|| {
            for _ in 0..5 {
                ask(&layer, plain());
            }
            // Clones and services of one layer log once together.
            ask(&layer.clone(), plain());
        });
        assert_one_line(&log, parts);
    }
}

#[test]
fn a_denial_is_logged_with_its_reason_and_no_other_request_is() {
    for (reason, layer, cost) in every_reason(|builder| builder) {
        // The lines of the store and of the wiring come before.
        ask(&layer, get([("api", cost)]));
        let log = logged(|| drop(ask(&layer, get([("api", cost)]))));
        let policies = match reason {
            DenialReason::Misconfigured => {
                assert_eq!(log, [""; 0]);
                continue;
            }
            DenialReason::StoreFailed => "[]",
            _ => r#"["api"]"#,
        };
        let parts = format!("tower_throttle::denied|DEBUG|{reason:?}|{policies}");
        assert_one_line(&log, &parts);
    }
    let log = logged(|| drop(ask(&layer_of([api()]).0, plain())));
    assert_eq!(log, [""; 0]);
}

const SECRET: &str = "sk-live-7Qx9vLmZ";
const PEER: &str = "203.0.113.77";

fn with_secret(method: Method, cost: u64) -> Request<Full<Bytes>> {
    let mut request = request(method, [("cost", cost)]);
    let secret = HeaderValue::from_static(SECRET);
    request.headers_mut().insert("x-api-key", secret);
    let peer = format!("{PEER}:4711").parse().unwrap();
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

#[track_caller]
fn assert_hides(what: &str) {
    use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

    let as_numbers = format!("{:?}", SECRET.as_bytes());
    // As long as a partition key, which it could be.
    let encoded = STANDARD_NO_PAD.encode(&SECRET.as_bytes()[..12]);
    for part in [SECRET, "7Qx9", PEER, "203, 0, 113", &as_numbers, &encoded] {
        assert!(!what.contains(part), "{part} in {what}");
    }
}

fn shown(answer: &Answer) -> String {
    let (headers, decision) = (&answer.headers, &answer.decision);
    format!("{headers:?} {} {decision:?}", answer.text())
}

#[test]
fn no_key_is_in_any_field_body_or_line() {
    let by_key = Policy::new("key", TokenBucket::per_minute(2))
        .key(key::header("x-api-key"))
        .cost_by(cost_in("cost"));
    let by_peer = Policy::new("peer", FixedWindow::per_day(2)).key(key::peer());
    let both = (key::header("x-api-key"), key::peer());
    let by_both = Policy::new("both", FixedWindow::per_day(2)).key(both);
    let policies = [by_key, by_peer, by_both];
    for headers in MODES {
        for choice in [
            OnStoreFailure::local(),
            OnStoreFailure::Allow,
            OnStoreFailure::Deny,
        ] {
            let (layer, _) = layer_with(policies.clone(), |builder| {
                let builder = builder.headers(headers).on_store_failure(choice);
                match headers {
                    HeaderFormat::Draft10 => builder.partition_key_secret(b"partition secret"),
                    _ => builder,
                }
            });
            let (showing, _) = layer_with(policies.clone(), |builder| {
                let builder = builder.on_store_failure(choice);
                builder.on_denied(|denied| Response::new(format!("{denied:?}")))
            });
            let log = logged(|| {
                let failing = layer.clone().store(Down);
                for layer in [layer, failing, showing] {
                    assert_hides(&format!("{layer:?} {:?}", layer.layer(())));
                    for method in [Method::GET, Method::HEAD] {
                        for cost in [1, 1, 1, 250] {
                            let answer = ask(&layer, with_secret(method.clone(), cost));
                            assert_hides(&shown(&answer));
                        }
                    }
                    let grpc = as_grpc(with_secret(Method::POST, 1));
                    assert_hides(&shown(&ask(&layer, grpc)));
                }
            });
            assert!(!log.is_empty());
            assert_hides(&log.join("\n"));
        }
    }
}

#[test]
fn the_secret_of_partition_keys_is_shown_by_nothing() {
    let shown = |secret: &[u8]| {
        let (layer, _) = layer_with([api()], |builder| {
            let builder = builder.store(Down).partition_key_secret(secret);
            assert_hides(&format!("{builder:?}"));
            builder
        });
        format!("{layer:?}")
    };
    assert_eq!(shown(b"one"), shown(b"another"));
}
