//! What is settled when the body of the response has ended.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, service_fn};
use tower_throttle::{Outcome, Policy, RateLimitLayer, ResponseBody, Settle, settle};

use super::{Frames, Part, left_of, window};
use crate::support::web::{at_once, layer_of, plain};

/// What a settler saw when it was asked.
#[derive(Clone, Debug, PartialEq)]
struct Saw {
    status: Option<u16>,
    body_bytes: u64,
    is_complete: bool,
    is_end: bool,
    trailers: Option<HeaderMap>,
}

type Seen = Arc<Mutex<Vec<Saw>>>;

/// A policy of 100 units that holds 10. It settles with `last` when it is asked at the end, and
/// notes what it sees.
fn watched(last: Settle) -> (Policy, Seen) {
    let seen = Seen::default();
    let notes = Arc::clone(&seen);
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
        notes.lock().unwrap().push(Saw {
            status: outcome.status().map(|status| status.as_u16()),
            body_bytes: outcome.body_bytes(),
            is_complete: outcome.is_complete(),
            is_end: outcome.is_end(),
            trailers: outcome.trailers().cloned(),
        });
        match outcome.is_end() {
            true => last,
            false => Settle::AtEnd,
        }
    });
    (policy, seen)
}

/// Sends a request that is answered with this body.
fn respond<B: Body + Clone>(
    layer: &RateLimitLayer,
    request: Request<Full<Bytes>>,
    response: &Response<B>,
) -> Response<ResponseBody<B>> {
    let inner = service_fn(move |_: Request<Full<Bytes>>| {
        let mut copy = Response::new(response.body().clone());
        *copy.status_mut() = response.status();
        *copy.headers_mut() = response.headers().clone();
        std::future::ready(Ok::<_, std::convert::Infallible>(copy))
    });
    at_once(layer.layer(inner).call(request)).expect("a response")
}

fn streamed(parts: impl IntoIterator<Item = Part>) -> Response<Frames> {
    Response::new(Frames::new(parts))
}

/// Polls so many frames of a body, and then drops it. Returns the outcome that the settler saw at
/// the end.
#[track_caller]
fn end_after<B>(frames: usize, request: Request<Full<Bytes>>, response: &Response<B>) -> Saw
where
    B: Body<Data = Bytes> + Clone + Unpin,
    B::Error: std::fmt::Debug,
{
    let (policy, seen) = watched(Settle::Units(1));
    let (layer, _) = layer_of([policy]);
    let mut body = respond(&layer, request, response).into_body();
    assert_eq!(left_of(&layer), 90);
    for _ in 0..frames {
        let _ = at_once(body.frame());
    }
    drop(body);
    assert_eq!(left_of(&layer), 99);
    let seen = seen.lock().unwrap();
    let [head, end] = &seen[..] else {
        panic!("asked {} times", seen.len());
    };
    assert!(!head.is_end && end.is_end);
    assert_eq!(head.status, end.status);
    end.clone()
}

#[test]
fn it_is_asked_once_more_when_the_body_has_ended() {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", HeaderValue::from_static("abc"));
    let response = streamed([
        Part::Data("one"),
        Part::Data("three"),
        Part::Trailers(trailers.clone()),
    ]);
    let end = end_after(4, plain(), &response);
    let expected = Saw {
        status: Some(200),
        body_bytes: 8,
        is_complete: true,
        is_end: true,
        trailers: Some(trailers),
    };
    assert_eq!(end, expected);
    // A server need not poll behind the trailers.
    assert_eq!(end_after(3, plain(), &response), expected);
}

#[test]
fn a_body_that_is_dropped_is_not_complete() {
    let response = streamed([Part::Data("one"), Part::Data("three"), Part::Data("last")]);
    for (frames, body_bytes, is_complete) in [
        (0, 0, false),
        (1, 3, false),
        (2, 8, false),
        (3, 12, false),
        (4, 12, true),
    ] {
        let end = end_after(frames, plain(), &response);
        assert_eq!((end.body_bytes, end.is_complete), (body_bytes, is_complete));
    }
}

/// It is settled when the body ends, though the body itself is still there.
#[test]
fn it_is_settled_at_the_end_and_not_when_the_body_is_dropped() {
    let (policy, _) = watched(Settle::Units(3));
    let (layer, _) = layer_of([policy]);
    let response = streamed([Part::Data("one")]);
    let mut body = respond(&layer, plain(), &response).into_body();
    assert!(at_once(body.frame()).is_some());
    assert_eq!(left_of(&layer), 90);
    assert!(at_once(body.frame()).is_none());
    assert_eq!(left_of(&layer), 97);
    drop(body);
    assert_eq!(left_of(&layer), 97);
}

/// hyper drops the body after as many bytes as the response announces.
#[test]
fn bodies_of_the_announced_length_are_complete() {
    let parts = || [Part::Data("one"), Part::Data("three")];
    for (length, is_complete) in [("8", true), ("9", false), ("7", false), ("no", false)] {
        let mut response = streamed(parts());
        let length = HeaderValue::from_static(length);
        response.headers_mut().insert("content-length", length);
        assert_eq!(end_after(2, plain(), &response).is_complete, is_complete);
    }
}

#[test]
fn at_the_end_the_head_is_known_still() {
    #[derive(Clone)]
    struct Model(&'static str);

    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| {
        if !outcome.is_end() {
            return Settle::AtEnd;
        }
        assert_eq!(outcome.headers()["x-model"], "large");
        assert_eq!(outcome.extensions().get::<Model>().unwrap().0, "large");
        assert_eq!(outcome.held(), 10);
        Settle::Units(2)
    });
    let (layer, _) = layer_of([policy]);
    let answer = super::answered(&layer, || {
        let mut response = streamed([Part::Data("text")]);
        let model = HeaderValue::from_static("large");
        response.headers_mut().insert("x-model", model);
        response.extensions_mut().insert(Model("large"));
        response
    });
    assert_eq!(answer.text(), "text");
    assert_eq!(left_of(&layer), 98);
}

/// Asked for more at the end, it gets what there is: without a handle, that is all that is held.
#[test]
fn at_end_at_the_end_charges_what_is_held() {
    let (policy, seen) = watched(Settle::AtEnd);
    let (layer, _) = layer_of([policy]);
    let answer = super::answered(&layer, || streamed([Part::Data("text")]));
    assert_eq!(answer.text(), "text");
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert_eq!(left_of(&layer), 90);
}

#[test]
fn a_closure_that_panics_at_the_end_charges_what_is_held() {
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| match outcome.is_end() {
        true => panic!("a bug of the application's"),
        false => Settle::AtEnd,
    });
    let (layer, _) = layer_of([policy]);
    let answer = super::answered(&layer, || streamed([Part::Data("text")]));
    assert_eq!(answer.text(), "text");
    assert_eq!(left_of(&layer), 90);
}

#[test]
fn bytes_of_the_body_are_charged_as_they_were_passed_on() {
    let policy = || {
        let policy = window("bytes", 100).cost(10);
        policy.settle_by(settle::body_bytes(4))
    };
    let parts = [Part::Data("seven .."), Part::Data("1"), Part::Data("four")];
    for (frames, units) in [(0, 0), (1, 2), (2, 3), (3, 4), (4, 4)] {
        let (layer, _) = layer_of([policy()]);
        let response = streamed(parts.clone());
        let mut body = respond(&layer, plain(), &response).into_body();
        assert_eq!(left_of(&layer), 90);
        for _ in 0..frames {
            let _ = at_once(body.frame());
        }
        drop(body);
        assert_eq!(left_of(&layer), 100 - units, "{frames}");
    }
}

/// Policies are settled each at its own time.
#[test]
fn one_policy_is_settled_at_the_head_and_one_at_the_end() {
    let failures = window("failures", 10).settle_by(settle::failures());
    let bytes = window("bytes", 100)
        .cost(10)
        .settle_by(settle::body_bytes(1));
    let (layer, _) = layer_of([failures, bytes]);
    let response = streamed([Part::Data("hello")]);
    let response = respond(&layer, plain(), &response);
    let field = crate::support::web::joined(response.headers(), "ratelimit");
    let expected = r#""failures";r=10;t=3600, "bytes";r=90;t=3600"#;
    assert_eq!(field.as_deref(), Some(expected));
    assert_eq!(super::left(&layer), [10, 90]);
    at_once(response.into_body().collect()).expect("a body");
    assert_eq!(super::left(&layer), [10, 95]);
}

/// Size and end are those of the inner body.
#[test]
fn the_body_passes_through_unchanged() {
    let (policy, _) = watched(Settle::Full);
    let (layer, _) = layer_of([policy]);
    let response = Response::new(Full::<Bytes>::from("hello"));
    let body = respond(&layer, plain(), &response).into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert_eq!(at_once(body.collect()).expect("a body").to_bytes(), "hello");
}
