//! What is settled when the head of the response is there.

use super::{answered, as_asked, ask_for, left_of, window};
use crate::prelude::*;

/// Returns how many of ten units a request takes that is answered with this status.
fn charged(policy: &Policy, status: u16) -> u64 {
    let (layer, _) = layer_of([policy.clone()]);
    assert_eq!(ask_for(&layer, status).status, status);
    10 - left_of(&layer)
}

#[test]
fn what_a_settler_names_is_charged_and_the_rest_is_free() {
    let failures = || window("failures", 10).settle_by(settle::failures());
    let listed = || window("listed", 10).settle_by(settle::status([401, 404, 200]));
    let errors = [400, 401, 404, 429, 499, 500, 503, 599];
    let others = [200, 204, 206, 301, 304, 999];
    for (policy, charges, charged_statuses, free) in [
        (failures().cost(3), 3, &errors[..], &others[..]),
        (listed(), 1, &[401, 404, 200], &[400, 500, 204]),
        // One unit, afterwards.
        (failures().cost(0), 1, &[404], &[200]),
        (listed().cost(0), 1, &[404], &[204]),
    ] {
        for status in charged_statuses {
            assert_eq!(charged(&policy, *status), charges, "{policy:?} {status}");
        }
        for status in free {
            assert_eq!(charged(&policy, *status), 0, "{policy:?} {status}");
        }
    }
}

#[test]
fn with_a_cost_of_0_one_more_passes_than_the_limit() {
    let (layer, _) = layer_of([window("guesses", 3).cost(0).settle_by(settle::failures())]);
    let statuses = [404; 6].map(|status| ask_for(&layer, status).status.as_u16());
    assert_eq!(statuses, [404, 404, 404, 404, 429, 429]);
}

#[test]
fn a_closure_sees_the_head_of_the_response_then_and_at_the_end() {
    #[derive(Clone, PartialEq, Debug)]
    struct Used(u64);

    for waits in [false, true] {
        let policy = window("units", 100).cost(20);
        let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
            assert_eq!(outcome.status(), Some(StatusCode::ACCEPTED));
            assert_eq!(outcome.headers()["x-kind"], "batch");
            assert_eq!(outcome.held(), 20);
            assert_eq!((outcome.trailers(), outcome.grpc_status()), (None, None));
            let used = outcome.extensions().get::<Used>().expect("what was used");
            if !outcome.is_end() {
                assert_eq!((outcome.body_bytes(), outcome.is_complete()), (0, false));
                if waits {
                    return Settle::AtEnd;
                }
            }
            Settle::Units(used.0)
        });
        let (layer, _) = layer_of([policy]);
        let respond = || {
            let response = Response::builder().status(202).header("x-kind", "batch");
            let response = response.extension(Used(7));
            response.body(Full::<Bytes>::from("accepted")).unwrap()
        };
        let answer = answered(&layer, respond);
        assert_eq!((answer.status.as_u16(), answer.text()), (202, "accepted"));
        assert_eq!(left_of(&layer), 93);
    }
}

#[test]
fn a_closure_that_panics_charges_what_is_held_and_the_response_goes_out() {
    for panics_at_end in [false, true] {
        let policy = window("units", 10).cost(4);
        let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
            match (outcome.status(), outcome.is_end() == panics_at_end) {
                (Some(StatusCode::OK), true) => panic!("a bug of the application's"),
                (Some(StatusCode::OK), false) => Settle::AtEnd,
                _ => Settle::Release,
            }
        });
        let (layer, _) = layer_of([policy]);
        let answer = ask_for(&layer, 200);
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello"));
        assert_eq!(left_of(&layer), 6);
        let field = answer.field("ratelimit");
        assert_eq!(field.as_deref(), Some(r#""units";r=6;t=3600"#));
        // The next request is not affected.
        assert_eq!(ask_for(&layer, 404).status, 404);
        assert_eq!(left_of(&layer), 6);
    }
}

/// A denial did not reach the handler, whoever denied. A list of statuses counts what it lists.
#[test]
fn a_denial_by_an_inner_layer_costs_nothing() {
    let outer = || window("outer", 10);
    for (policy, remaining) in [
        (outer().settle_by(settle::failures()), 10),
        (outer().settle_by(settle::header("x-cost")), 10),
        (outer().settle_by(settle::body_bytes(1)), 10),
        (outer().settle_by(settle::status([429])), 9),
    ] {
        let (outer, inner) = (layer_of([policy]).0, layer_of([window("inner", 1)]).0);
        assert_eq!(ask_for(&inner, 200).status, 200);
        let denied = ask_service(outer.layer(inner.layer(service_fn(as_asked))), plain());
        assert_eq!(denied.status, 429);
        assert_eq!(left_of(&outer), remaining, "{outer:?}");
    }
}

#[test]
fn an_error_of_the_inner_service_passes_through_and_is_no_response() {
    let noted = |outcome: &Outcome<'_>| {
        let fields = outcome.headers().len();
        let seen = (outcome.status(), outcome.is_end(), fields);
        assert_eq!(seen, (None, true, 0));
        Settle::Release
    };
    for (policy, remaining) in [
        (window("units", 10).settle_by(noted), 10),
        (window("units", 10).settle_by(settle::failures()), 9),
    ] {
        let (layer, _) = layer_of([policy]);
        let failing = service_fn(|_: Request<Full<Bytes>>| async {
            Err::<Response<Full<Bytes>>, _>("the handler's own error")
        });
        let result = at_once(layer.layer(failing).oneshot(plain()));
        assert_eq!(result.err(), Some("the handler's own error"));
        assert_eq!(left_of(&layer), remaining);
    }
}

/// A handler that takes the handle fails without it, so it is there also if nothing is held. The
/// settler is not asked then.
#[test]
fn a_handle_is_in_each_request_of_a_layer_with_a_settler() {
    let has_hold = |request: Request<Full<Bytes>>| {
        let hold = request.extensions().get::<Hold>();
        let text = hold.is_some().to_string();
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
            text,
        ))))
    };
    let settling = window("settling", 10).settle_by(settle::failures());
    let unasked = |_: &Outcome<'_>| -> Settle { panic!("it does not apply") };
    let unasked = window("unasked", 10).settle_by(unasked).when(|_| false);
    for (policy, expected) in [
        (window("other", 10), "false"),
        (settling, "true"),
        (unasked, "true"),
    ] {
        let (layer, _) = layer_of([window("plain", 10), policy]);
        let answer = ask_service(layer.layer(service_fn(has_hold)), plain());
        assert_eq!(answer.text(), expected);
    }
}
