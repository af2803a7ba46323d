//! What is settled when the head of the response is there.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Outcome, Policy, RateLimitLayer, Settle, settle};

use super::{answered, ask_for, left_of, window};
use crate::support::web::{ask_service, at_once, layer_of, plain};

/// Returns how many of ten units a request takes that is answered with this status.
fn charged(policy: &Policy, status: u16) -> u64 {
    let (layer, _) = layer_of([policy.clone()]);
    assert_eq!(ask_for(&layer, status).status, status);
    10 - left_of(&layer)
}

#[test]
fn failures_are_charged_and_the_rest_is_free() {
    let policy = window("failures", 10).cost(3).settle_by(settle::failures());
    for status in [400, 401, 404, 429, 499, 500, 503, 599] {
        assert_eq!(charged(&policy, status), 3, "{status}");
    }
    for status in [200, 204, 206, 301, 304, 999] {
        assert_eq!(charged(&policy, status), 0, "{status}");
    }
}

#[test]
fn listed_statuses_are_charged_and_the_rest_is_free() {
    let policy = window("guesses", 10).settle_by(settle::status([401, 404, 200]));
    for (status, units) in [(401, 1), (404, 1), (200, 1), (400, 0), (500, 0), (204, 0)] {
        assert_eq!(charged(&policy, status), units, "{status}");
    }
}

#[test]
fn with_a_cost_of_0_a_failure_costs_one_unit_afterwards() {
    let failures = window("failures", 10).cost(0).settle_by(settle::failures());
    assert_eq!([200, 404].map(|status| charged(&failures, status)), [0, 1]);
    let guesses = window("guesses", 10).cost(0);
    let guesses = guesses.settle_by(settle::status([404]));
    assert_eq!([200, 404].map(|status| charged(&guesses, status)), [0, 1]);
}

/// With a cost of 0, requests pass until the limit is exceeded.
#[test]
fn with_a_cost_of_0_one_more_passes_than_the_limit() {
    let (layer, _) = layer_of([window("guesses", 3).cost(0).settle_by(settle::failures())]);
    let statuses = [404; 6].map(|status| ask_for(&layer, status).status.as_u16());
    assert_eq!(statuses, [404, 404, 404, 404, 429, 429]);
}

#[test]
fn a_closure_sees_the_head_of_the_response() {
    #[derive(Clone, PartialEq, Debug)]
    struct Used(u64);

    let policy = window("units", 100).cost(20);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| {
        assert_eq!(outcome.status(), Some(StatusCode::ACCEPTED));
        assert_eq!(outcome.headers()["x-kind"], "batch");
        assert_eq!(outcome.held(), 20);
        assert_eq!(outcome.body_bytes(), 0);
        assert_eq!((outcome.is_end(), outcome.is_complete()), (false, false));
        assert_eq!((outcome.trailers(), outcome.grpc_status()), (None, None));
        let used = outcome.extensions().get::<Used>().expect("what was used");
        Settle::Units(used.0)
    });
    let (layer, _) = layer_of([policy]);
    let respond = || {
        let mut response = Response::new(Full::<Bytes>::from("accepted"));
        *response.status_mut() = StatusCode::ACCEPTED;
        response
            .headers_mut()
            .insert("x-kind", "batch".parse().unwrap());
        response.extensions_mut().insert(Used(7));
        response
    };
    assert_eq!(answered(&layer, respond).status, 202);
    assert_eq!(left_of(&layer), 93);
}

#[test]
fn a_closure_that_panics_charges_what_is_held_and_the_response_goes_out() {
    let policy = window("units", 10).cost(4);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| match outcome.status() {
        Some(StatusCode::OK) => panic!("a bug of the application's"),
        _ => Settle::Release,
    });
    let (layer, _) = layer_of([policy]);
    let answer = ask_for(&layer, 200);
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello"));
    assert_eq!(left_of(&layer), 6);
    assert_eq!(
        answer.field("ratelimit").as_deref(),
        Some(r#""units";r=6;t=3600"#)
    );
    // The next request is not affected.
    assert_eq!(ask_for(&layer, 404).status, 404);
    assert_eq!(left_of(&layer), 6);
}

/// A layer that denies.
fn used_up() -> RateLimitLayer {
    let (inner, _) = layer_of([window("inner", 1)]);
    assert_eq!(ask_for(&inner, 200).status, 200);
    inner
}

/// A denial did not reach the handler, whoever denied.
#[test]
fn a_denial_by_an_inner_layer_costs_nothing() {
    let settlers: [(&str, Policy); 3] = [
        (
            "failures",
            window("outer", 10).settle_by(settle::failures()),
        ),
        (
            "header",
            window("outer", 10).settle_by(settle::header("x-cost")),
        ),
        (
            "bytes",
            window("outer", 10).settle_by(settle::body_bytes(1)),
        ),
    ];
    for (name, outer) in settlers {
        let (outer, _) = layer_of([outer]);
        let inner = used_up();
        let hello = service_fn(crate::support::web::hello::<Full<Bytes>>);
        let service = outer.layer(inner.layer(hello));
        assert_eq!(ask_service(service, plain()).status, 429);
        assert_eq!(left_of(&outer), 10, "{name}");
    }
    // A list of statuses counts what it lists.
    let (outer, _) = layer_of([window("outer", 10).settle_by(settle::status([429]))]);
    let inner = used_up();
    let hello = service_fn(crate::support::web::hello::<Full<Bytes>>);
    ask_service(outer.layer(inner.layer(hello)), plain());
    assert_eq!(left_of(&outer), 9);
}

#[test]
fn an_error_of_the_inner_service_passes_through_and_is_no_response() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let policy = window("units", 10).settle_by(move |outcome: &Outcome<'_>| {
        let (status, is_end) = (outcome.status(), outcome.is_end());
        asked
            .lock()
            .unwrap()
            .push((status, is_end, outcome.headers().len()));
        Settle::Release
    });
    let (layer, _) = layer_of([policy]);
    let failing = service_fn(|_: Request<Full<Bytes>>| async {
        Err::<Response<Full<Bytes>>, _>("the handler's own error")
    });
    let result = at_once(layer.layer(failing).oneshot(plain()));
    assert_eq!(result.err(), Some("the handler's own error"));
    assert_eq!(*seen.lock().unwrap(), [(None, true, 0)]);
    assert_eq!(left_of(&layer), 10);

    let (layer, _) = layer_of([window("units", 10).settle_by(settle::failures())]);
    let failing = service_fn(|_: Request<Full<Bytes>>| async {
        Err::<Response<Full<Bytes>>, _>("the handler's own error")
    });
    let _ = at_once(layer.layer(failing).oneshot(plain()));
    assert_eq!(left_of(&layer), 9);
}

#[test]
fn requests_that_the_policy_does_not_apply_to_are_not_asked_about() {
    let policy = window("units", 10).when(|head| head.headers().contains_key("limited"));
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("it does not apply") });
    let (layer, _) = layer_of([policy]);
    let answer = ask_service(layer.layer(service_fn(super::as_asked)), plain());
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("ratelimit"), None);
}

/// A handler that takes the handle fails without it, so it is there also if nothing is held.
#[test]
fn a_handle_is_in_each_request_of_a_layer_with_a_settler() {
    async fn has_hold(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
        let hold = request.extensions().get::<tower_throttle::Hold>();
        Ok(Response::new(Full::from(format!("{}", hold.is_some()))))
    }
    let settling = window("settling", 10).settle_by(settle::failures());
    for (policies, expected) in [
        ([window("plain", 10), window("other", 10)], "false"),
        ([window("plain", 10), settling.clone()], "true"),
        ([window("plain", 10), settling.when(|_| false)], "true"),
    ] {
        let (layer, _) = layer_of(policies);
        let answer = ask_service(layer.layer(service_fn(has_hold)), plain());
        assert_eq!(answer.text(), expected);
    }
}
