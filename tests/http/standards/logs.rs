//! Checklist 23, and what an operator reads: no line shows a key, and each mistake is logged
//! once.

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use tower::Layer;
use tower_throttle::{
    FixedWindow, HeaderFormat, OnStoreFailure, Policy, RateLimitLayerBuilder, TokenBucket, key,
};
use tracing_subscriber::{Layer as _, filter::Targets, layer::SubscriberExt};

use crate::logged::{ToLog, logged};
use crate::support::assert_one_line;
use crate::support::web::{
    Answer, Down, as_grpc, ask, ask_service, cost_in, get, hello, layer_of, layer_with, plain,
    request,
};

#[test]
fn a_missing_peer_address_is_logged_once_with_what_to_change() {
    let (layer, _) = layer_of([TokenBucket::per_second(1).into()]);
    let log = logged(|| {
        for _ in 0..5 {
            assert_eq!(ask(&layer, plain()).status, 500);
        }
        // Clones and services of one layer log once together.
        assert_eq!(ask(&layer.clone(), plain()).status, 500);
    });
    assert_one_line(
        &log,
        "into_make_service_with_connect_info|tower_throttle::wiring|ERROR",
    );
}

#[test]
fn a_store_that_fails_is_logged_once() {
    let (layer, _) = layer_of([crate::support::web::api()]);
    let layer = layer.store(Down);
    let log = logged(|| {
        for _ in 0..5 {
            ask(&layer, plain());
        }
    });
    assert_one_line(&log, "tower_throttle::store|unavailable|on_store_failure");
}

/// What an application logs without a filter, with the filter of the README, and with a filter
/// that names only the application.
#[test]
fn an_outage_is_logged_unless_a_filter_leaves_it_out() {
    for (filter, is_seen) in [
        ("error", true),
        ("myapp=info,tower_throttle=info", true),
        ("myapp=info", false),
    ] {
        let (layer, _) = layer_of([crate::support::web::api()]);
        let layer = layer.store(Down);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| ToLog)
            .with_filter(filter.parse::<Targets>().expect("a filter"));
        let subscriber = tracing_subscriber::registry().with(lines);
        let log = logged(|| {
            tracing::subscriber::with_default(subscriber, || ask(&layer, plain()));
        });
        assert_eq!(log.len(), usize::from(is_seen), "{filter:?}: {log:?}");
        let has_cause = log
            .iter()
            .all(|line| line.contains(crate::support::web::DOWN_BECAUSE));
        assert!(has_cause, "{log:?}");
    }
}

/// Each kind of denial is logged.
#[test]
fn a_denial_is_logged_with_its_reason() {
    let by_header = Policy::new("keyed", TokenBucket::per_minute(1)).key(key::header("x-api-key"));
    let closing = |builder: RateLimitLayerBuilder| builder.on_store_failure(OnStoreFailure::Deny);
    let (used_up, _) = layer_of([crate::support::web::api(), crate::support::web::day()]);
    ask(&used_up, get([("api", 100)]));
    let cases = [
        (layer_of([by_header]).0, 1, "KeyMissing", r#"["keyed"]"#),
        (used_up, 1, "QuotaExceeded", r#"["api"]"#),
        (
            layer_of([crate::support::web::api()]).0,
            101,
            "CostImpossible",
            r#"["api"]"#,
        ),
        (
            layer_with([crate::support::web::api()], closing)
                .0
                .store(Down),
            1,
            "StoreFailed",
            "[]",
        ),
    ];
    for (layer, cost, reason, policies) in cases {
        // The store's own line comes before.
        ask(&layer, get([("api", cost)]));
        let log = logged(|| {
            ask(&layer, get([("api", cost)]));
        });
        assert_one_line(
            &log,
            &format!("tower_throttle::denied|DEBUG|{reason}|{policies}"),
        );
    }
}

#[test]
fn a_request_that_is_admitted_is_not_logged() {
    let (layer, _) = layer_of([crate::support::web::api()]);
    let log = logged(|| {
        ask(&layer, plain());
    });
    assert_eq!(log, Vec::<String>::new());
}

const SECRET: &str = "sk-live-7Qx9vLmZ";
const PEER: &str = "203.0.113.77";

fn with_secret(method: Method, cost: u64) -> Request<Full<Bytes>> {
    let mut request = request(method, [("cost", cost)]);
    let secret = HeaderValue::from_static(SECRET);
    request.headers_mut().insert("x-api-key", secret);
    let peer = format!("{PEER}:4711").parse().unwrap();
    request.extensions_mut().insert(key::PeerAddr(peer));
    request
}

#[track_caller]
fn assert_hides(what: &str) {
    use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

    let as_numbers = format!("{:?}", SECRET.as_bytes());
    let encoded = STANDARD_NO_PAD.encode(SECRET);
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
    let by_key = || -> Policy {
        Policy::new("key", TokenBucket::per_minute(2))
            .key(key::header("x-api-key"))
            .cost_by(cost_in("cost"))
    };
    let by_peer = || Policy::new("peer", FixedWindow::per_day(2)).key(key::peer());
    let by_both = || {
        let both = (key::header("x-api-key"), key::peer());
        Policy::new("both", FixedWindow::per_day(2)).key(both)
    };
    for headers in [
        HeaderFormat::Draft10,
        HeaderFormat::Draft7,
        HeaderFormat::XRateLimitEpoch,
    ] {
        for choice in [
            OnStoreFailure::local(),
            OnStoreFailure::Allow,
            OnStoreFailure::Deny,
        ] {
            let (layer, _) = layer_with([by_key(), by_peer(), by_both()], |builder| {
                let builder = builder.headers(headers).on_store_failure(choice);
                match headers {
                    HeaderFormat::Draft10 => builder.partition_key_secret(b"partition secret"),
                    _ => builder,
                }
            });
            let log = logged(|| {
                for layer in [layer.clone(), layer.clone().store(Down)] {
                    assert_hides(&format!("{layer:?}"));
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
fn no_key_is_shown_to_the_hook_or_by_services() {
    let policy = Policy::new("key", TokenBucket::per_minute(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_with([policy], |builder| {
        builder.on_denied(|denied| http::Response::new(format!("{denied:?}")))
    });
    let service = || {
        let service = layer.layer(tower::service_fn(hello::<Full<Bytes>>));
        assert_hides(&format!("{:?}", layer));
        service
    };
    ask_service(service(), with_secret(Method::GET, 1));
    let answer = ask_service(service(), with_secret(Method::GET, 1));
    assert!(answer.text().contains("Denied"));
    assert_hides(answer.text());
}

#[test]
fn the_secret_of_partition_keys_is_shown_by_nothing() {
    let shown = |secret: &[u8]| {
        let (layer, _) = layer_with([crate::support::web::api()], |builder| {
            let builder = builder.store(Down).partition_key_secret(secret);
            assert_hides(&format!("{builder:?}"));
            builder
        });
        format!("{layer:?}")
    };
    assert_eq!(shown(b"one"), shown(b"another"));
}
