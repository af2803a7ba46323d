//! The status of a gRPC call is in its trailers, or in its headers if there is no message.

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::Code;
use tower::{Layer, Service};
use tower_throttle::{Outcome, RateLimitLayer, Settle, settle};

use super::{Frames, Part, answered, left_of, window};
use crate::{
    grpc::calls::{call, connect},
    support::{
        eventually_async,
        web::{at_once, layer_of, plain},
    },
};

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

/// With a real client, over HTTP/2.
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
            let settled = async || left_of(&layer) == remaining;
            eventually_async("the settlement", settled).await;
        }
        let denied = call(&mut client, 0).await.unwrap_err();
        assert_eq!(denied.code(), Code::ResourceExhausted, "{place:?}");
        assert_eq!(left_of(&layer), 0);
    }
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
