//! The status of a gRPC call is in its trailers, or in its headers if there is no message.

use super::{Frames, Part, answered, left_of, window};
use crate::prelude::*;

const GRPC: &str = "application/grpc";

pub(crate) fn status_field(code: i32) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from(code));
    fields
}

/// Sends a call that is answered with these parts, of which so many are polled. Returns the units
/// that it was charged.
fn charged(kind: &'static str, parts: impl IntoIterator<Item = Part>, polls: usize) -> u64 {
    let (layer, _) = layer_of([window("failures", 3).settle_by(settle::failures())]);
    let response = Response::builder().header("content-type", kind);
    let response = response.body(Frames::new(parts)).expect("a response");
    let mut body = responding(&layer, plain(), response).into_body();
    for _ in 0..polls {
        let _ = at_once(body.frame());
    }
    drop(body);
    3 - left_of(&layer)
}

#[test]
fn a_call_whose_client_leaves_before_the_status_is_charged() {
    let data = [Part::Data("one"), Part::Data("two")];
    for (polls, units) in [(0, 1), (1, 1), (2, 1), (3, 0), (4, 0)] {
        let parts = data
            .iter()
            .cloned()
            .chain([Part::Trailers(status_field(0))]);
        assert_eq!(charged(GRPC, parts, polls), units, "{polls}");
    }
    // A stream without an end.
    assert_eq!(charged(GRPC, [Part::Data("one"), Part::Never], 1), 1);
}

#[test]
fn a_call_without_a_status_is_charged() {
    let unreadable = |value| {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", HeaderValue::from_static(value));
        vec![Part::Trailers(fields)]
    };
    for (parts, units) in [
        (vec![], 1),
        (vec![Part::Data("one")], 1),
        (vec![Part::Data("one"), Part::Error], 1),
        (unreadable(""), 1),
        (unreadable("ok"), 1),
        (unreadable("-1"), 1),
        (unreadable("99999999999"), 1),
        (unreadable("0"), 0),
    ] {
        assert_eq!(charged(GRPC, parts.clone(), 2), units, "{parts:?}");
    }
}

/// In a response without messages it is in the headers. Other responses have it by mistake.
#[test]
fn a_status_that_is_no_number_is_a_failure_and_is_counted() {
    for (kind, value, counts) in [
        (GRPC, "0", (0, 0)),
        (GRPC, "7", (1, 0)),
        (GRPC, "ok", (1, 1)),
        (GRPC, "-1", (1, 1)),
        (GRPC, "", (1, 1)),
        ("application/json", "0", (0, 0)),
        ("application/json", "ok", (1, 1)),
    ] {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", HeaderValue::from_static(value));
        let behind = vec![Part::Data("hello"), Part::Trailers(fields.clone())];
        for (head, parts) in [(fields, vec![]), (HeaderMap::new(), behind)] {
            if kind != GRPC && head.is_empty() {
                continue;
            }
            let (layer, _) = layer_of([window("failures", 3).settle_by(settle::failures())]);
            answered(&layer, || {
                let response = Response::builder().header("content-type", kind);
                let mut response = response.body(Frames::new(parts.clone())).expect("valid");
                response.headers_mut().extend(head.clone());
                response
            });
            let found = (3 - left_of(&layer), layer.metrics().unread.cost);
            assert_eq!(found, counts, "{kind} {value:?} {head:?}");
        }
    }
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

/// A closure of one's own reads the status, too: behind a message, and in a response without one.
#[test]
fn a_closure_reads_the_status_from_headers_or_trailers() {
    let policy = window("units", 100).cost(20);
    let policy = policy.settle_by(|outcome: &Outcome<'_>| match outcome.grpc_status() {
        Some(code) => Settle::Units(code.into()),
        None => Settle::AtEnd,
    });
    let (layer, _) = layer_of([policy]);
    let behind = vec![Part::Data("hello"), Part::Trailers(status_field(7))];
    for (fields, parts, remaining) in [
        (status_field(7), vec![], 93),
        (HeaderMap::new(), behind, 86),
    ] {
        answered(&layer, || {
            let response = Response::builder().header("content-type", "application/grpc");
            let mut response = response.body(Frames::new(parts.clone())).expect("valid");
            response.headers_mut().extend(fields.clone());
            response
        });
        assert_eq!(left_of(&layer), remaining);
    }
}
