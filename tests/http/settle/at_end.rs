//! What is settled when the body of the response has ended.

use http_body::Body;

use super::{Frames, Part, left_of, window};
use crate::prelude::*;

/// What a settler saw at the end: bytes, whether that was all, and the trailers.
type Saw = (u64, bool, Option<HeaderMap>);

/// A layer of a policy of 100 units that holds 10, and charges one at the end. It notes what its
/// settler sees then.
fn watched() -> (RateLimitLayer, Arc<Mutex<Vec<Saw>>>) {
    let seen = Arc::<Mutex<Vec<Saw>>>::default();
    let notes = Arc::clone(&seen);
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
        assert_eq!(outcome.status(), Some(StatusCode::OK));
        if !outcome.is_end() {
            return Settle::AtEnd;
        }
        let (bytes, is_complete) = (outcome.body_bytes(), outcome.is_complete());
        let saw = (bytes, is_complete, outcome.trailers().cloned());
        notes.lock().unwrap().push(saw);
        Settle::Units(1)
    });
    (layer_of([policy]).0, seen)
}

/// hyper drops the body behind the trailers, or after as many bytes as the response announces. A
/// body that was polled to its end is settled, though it is still there.
#[test]
fn a_body_is_complete_if_it_was_polled_to_its_end_its_trailers_or_its_length() {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", HeaderValue::from_static("abc"));
    let data = || vec![Part::Data("one"), Part::Data("three")];
    let with_trailers = || [data(), vec![Part::Trailers(trailers.clone())]].concat();
    for (parts, length, frames, body_bytes, is_complete) in [
        (data(), None, 0, 0, false),
        (data(), None, 1, 3, false),
        (data(), None, 2, 8, false),
        (data(), None, 3, 8, true),
        (with_trailers(), None, 2, 8, false),
        (with_trailers(), None, 3, 8, true),
        (with_trailers(), None, 4, 8, true),
        (data(), Some("8"), 2, 8, true),
        (data(), Some("9"), 2, 8, false),
        (data(), Some("7"), 2, 8, false),
        (data(), Some("no"), 2, 8, false),
    ] {
        let what = format!("{frames} of {parts:?}, {length:?}");
        let is_polled_to_its_end = frames > parts.len();
        let mut response = Response::new(Frames::new(parts));
        if let Some(length) = length {
            let length = HeaderValue::from_static(length);
            response.headers_mut().insert("content-length", length);
        }
        let (layer, seen) = watched();
        let mut body = responding(&layer, plain(), response).into_body();
        assert_eq!(left_of(&layer), 90);
        let mut trailers = None;
        for _ in 0..frames {
            let frame = at_once(body.frame()).transpose().expect("no error");
            trailers = trailers.or(frame.and_then(|frame| frame.into_trailers().ok()));
        }
        assert!(!is_polled_to_its_end || left_of(&layer) == 99, "{what}");
        drop(body);
        assert_eq!(left_of(&layer), 99);
        let expected = [(body_bytes, is_complete, trailers)];
        assert_eq!(*seen.lock().unwrap(), expected, "{what}");
    }
}

#[test]
fn bytes_of_the_body_are_charged_as_they_were_passed_on() {
    let policy = window("bytes", 100).cost(10);
    let policy = policy.settle_by(settle::body_bytes(4));
    let parts = [Part::Data("seven .."), Part::Data("1"), Part::Data("four")];
    for (frames, units) in [(0, 0), (1, 2), (2, 3), (3, 4), (4, 4)] {
        let (layer, _) = layer_of([policy.clone()]);
        let response = Response::new(Frames::new(parts.clone()));
        let mut body = responding(&layer, plain(), response).into_body();
        assert_eq!(left_of(&layer), 90);
        for _ in 0..frames {
            let _ = at_once(body.frame());
        }
        drop(body);
        assert_eq!(left_of(&layer), 100 - units, "{frames}");
    }
}

/// What the end will say is unknown, so what is held counts as used. Size and end are those of the
/// inner body.
#[test]
fn one_policy_is_settled_at_the_head_and_one_at_the_end() {
    let failures = window("failures", 10).settle_by(settle::failures());
    let bytes = window("bytes", 100).cost(10);
    let (layer, _) = layer_of([failures, bytes.settle_by(settle::body_bytes(1))]);
    let response = responding(&layer, plain(), Response::new(Full::<Bytes>::from("hello")));
    let field = joined(response.headers(), "ratelimit");
    let expected = r#""failures";r=10;t=3600, "bytes";r=90;t=3600"#;
    assert_eq!(field.as_deref(), Some(expected));
    assert_eq!(super::left(&layer), [10, 90]);
    let body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert_eq!(at_once(body.collect()).expect("a body").to_bytes(), "hello");
    assert_eq!(super::left(&layer), [10, 95]);
}
