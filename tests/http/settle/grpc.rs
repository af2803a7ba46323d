//! The status of a gRPC call is in its trailers, or in its headers if there is no message.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service};
use tower_throttle::{Outcome, RateLimitLayer, Settle, settle};

use super::{Frames, Part, answered, left_of, window};
use crate::support::web::{at_once, layer_of, plain};

fn failures() -> RateLimitLayer {
    let (layer, _) = layer_of([window("failures", 3).settle_by(settle::failures())]);
    layer
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

/// Where a method sends its status.
#[derive(Clone, Copy, Debug)]
enum StatusIn {
    /// A response without a message, "Trailers-Only".
    Headers,
    /// Behind a message.
    Trailers,
}

/// Sends a call that is answered with these parts, of which so many are polled.
fn charged(kind: &'static str, parts: impl IntoIterator<Item = Part>, polls: usize) -> u64 {
    let layer = failures();
    let body = Frames::new(parts);
    let inner = tower::service_fn(move |_: Request<Full<Bytes>>| {
        let mut response = Response::new(body.clone());
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert("content-type", kind);
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let response = at_once(layer.layer(inner).call(plain())).expect("a response");
    let mut body = response.into_body();
    for _ in 0..polls {
        let _ = at_once(body.frame());
    }
    drop(body);
    3 - left_of(&layer)
}

#[test]
fn a_call_whose_client_leaves_before_the_status_is_charged() {
    let parts = || {
        [
            Part::Data("one"),
            Part::Data("two"),
            Part::Trailers(status_field(0)),
        ]
    };
    for (polls, units) in [(0, 1), (1, 1), (2, 1), (3, 0), (4, 0)] {
        assert_eq!(
            charged("application/grpc", parts(), polls),
            units,
            "{polls}"
        );
    }
    // A stream without an end.
    assert_eq!(
        charged("application/grpc", [Part::Data("one"), Part::Never], 1),
        1
    );
}

#[test]
fn a_call_without_a_status_is_charged() {
    for parts in [
        vec![],
        vec![Part::Data("one")],
        vec![Part::Data("one"), Part::Error],
    ] {
        assert_eq!(charged("application/grpc", parts, 2), 1);
    }
    let unreadable = |value| {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", HeaderValue::from_static(value));
        [Part::Trailers(fields)]
    };
    for value in ["", "ok", "-1", "99999999999"] {
        assert_eq!(
            charged("application/grpc", unreadable(value), 1),
            1,
            "{value:?}"
        );
    }
    assert_eq!(charged("application/grpc", unreadable("0"), 1), 0);
}

#[test]
fn only_grpc_waits_for_its_trailers() {
    for (kind, units) in [
        ("application/grpc", 1),
        ("application/grpc+proto", 1),
        ("Application/GRPC; charset=utf-8", 1),
        ("application/grpc ;x=y", 1),
        ("application/grpcx", 0),
        ("application/json", 0),
        // Its status is in the last message.
        ("application/grpc-web+proto", 0),
    ] {
        assert_eq!(charged(kind, [Part::Data("one")], 2), units, "{kind}");
    }
}

/// A closure of one's own reads the status, too.
#[test]
fn a_closure_reads_the_status_from_headers_or_trailers() {
    let policy = window("units", 100).cost(20);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| match outcome.grpc_status() {
        Some(code) => Settle::Units(code.into()),
        None => Settle::AtEnd,
    });
    let (layer, _) = layer_of([policy]);
    answered(&layer, || respond_in_memory(StatusIn::Headers));
    assert_eq!(left_of(&layer), 93);
    answered(&layer, || respond_in_memory(StatusIn::Trailers));
    assert_eq!(left_of(&layer), 86);
}

fn respond_in_memory(place: StatusIn) -> Response<Frames> {
    let (fields, parts) = match place {
        StatusIn::Headers => (status_field(7), vec![]),
        StatusIn::Trailers => {
            let trailers = Part::Trailers(status_field(7));
            (HeaderMap::new(), vec![Part::Data("hello"), trailers])
        }
    };
    let mut response = grpc_response(Frames::new(parts));
    response.headers_mut().extend(fields);
    response
}
