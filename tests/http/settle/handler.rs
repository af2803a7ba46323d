//! A handler settles by itself, with the handle in the extensions of its request.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, service_fn};
use tower_throttle::{Hold, Outcome, Policy, RateLimitLayer, Settle};

use super::{left, left_of, window};
use crate::support::web::{ask_service, at_once, layer_of, plain};

/// A policy whose requests are settled by the handler: it holds 10 of 100 units.
fn by_handler(name: &str) -> Policy {
    let policy = window(name, 100).cost(10);
    policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd)
}

/// Sends a request to a handler that does this with the handle.
#[track_caller]
fn handled(layer: &RateLimitLayer, handler: impl Fn(Hold) + Clone) -> crate::support::web::Answer {
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        handler(
            request
                .extensions()
                .get::<Hold>()
                .expect("a handle")
                .clone(),
        );
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
            "hello",
        ))))
    });
    ask_service(layer.layer(inner), plain())
}

#[test]
fn the_first_settlement_wins() {
    let (layer, _) = layer_of([by_handler("units")]);
    handled(&layer, |hold| {
        assert_eq!(hold.units("units"), Some(10));
        assert!(hold.settle("units", 3));
        let other = hold.clone();
        assert!(!other.settle("units", 7) && !hold.settle("units", 3) && !hold.release("units"));
    });
    assert_eq!(left_of(&layer), 97);
}

#[test]
fn the_settler_is_not_asked_about_what_the_handler_has_settled() {
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("it is settled") });
    let (layer, _) = layer_of([policy]);
    let answer = handled(&layer, |hold| assert!(hold.settle("units", 4)));
    assert_eq!(left_of(&layer), 96);
    // The response tells what is left after it.
    assert_eq!(
        answer.field("ratelimit").as_deref(),
        Some(r#""units";r=96;t=3600"#)
    );
}

#[test]
fn the_handler_is_too_late_after_the_settler() {
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|_: &Outcome<'_>| Settle::Units(4));
    let (layer, _) = layer_of([policy]);
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    handled(&layer, move |hold| *keep.lock().unwrap() = Some(hold));
    let hold = kept.lock().unwrap().take().expect("a handle");
    assert!(!hold.settle("units", 9));
    drop(hold);
    assert_eq!(left_of(&layer), 96);
}

#[test]
fn a_handle_releases_and_knows_its_policies() {
    let (layer, _) = layer_of([by_handler("one"), window("plain", 10), by_handler("two")]);
    handled(&layer, |hold| {
        assert_eq!(hold.units("plain"), None);
        assert_eq!(hold.units("other"), None);
        assert!(!hold.settle("plain", 1) && !hold.release("other"));
        assert!(hold.release("two"));
    });
    assert_eq!(left(&layer), [90, 9, 100]);
}

/// More than was held is owed, and nothing is a number, too.
#[test]
fn a_handler_may_settle_any_number() {
    for (units, remaining) in [(0, 100), (10, 90), (60, 40), (100, 0), (u64::MAX, 0)] {
        let policy = by_handler("units").max_debt(50);
        let (layer, _) = layer_of([policy]);
        handled(&layer, move |hold| assert!(hold.settle("units", units)));
        assert_eq!(left_of(&layer), remaining, "{units}");
    }
}

/// A handle that outlives the response decides, wherever it went.
#[test]
fn the_last_handle_decides_after_the_response() {
    let (layer, _) = layer_of([by_handler("units")]);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let ask = || {
        handled(&layer, {
            let keep = Arc::clone(&keep);
            move |hold| keep.lock().unwrap().push(hold)
        })
    };
    ask();
    assert_eq!(left_of(&layer), 90);
    assert!(kept.lock().unwrap().remove(0).settle("units", 2));
    assert_eq!(left_of(&layer), 98);
    // Dropped unused, it is charged in full.
    ask();
    assert_eq!(left_of(&layer), 88);
    kept.lock().unwrap().clear();
    assert_eq!(left_of(&layer), 88);
    // While it lives, it is held.
    ask();
    assert_eq!(left_of(&layer), 78);
    assert!(kept.lock().unwrap().remove(0).release("units"));
    assert_eq!(left_of(&layer), 88);
}

#[test]
fn a_handle_shows_no_key() {
    let policy = Policy::new("units", tower_throttle::FixedWindow::per_hour(9));
    let policy = policy.key(|_: &tower_throttle::RequestHead<'_>| Some("s3cret".into()));
    let (layer, _) = layer_of([policy.settle_by(|_: &Outcome<'_>| Settle::Full)]);
    handled(&layer, |hold| {
        let shown = format!("{hold:?}");
        assert!(
            shown.contains("units") && !shown.contains("s3cret"),
            "{shown}"
        );
    });
}

/// The handler's handle has the policies of both layers.
#[test]
fn under_two_layers_the_handle_has_the_policies_of_both() {
    let (outer, _) = layer_of([by_handler("outer"), by_handler("both")]);
    let (inner, _) = layer_of([by_handler("inner"), by_handler("both")]);
    let handler = service_fn(|request: Request<Full<Bytes>>| {
        let hold = request.extensions().get::<Hold>().expect("a handle");
        let units = ["inner", "outer", "both"].map(|policy| hold.units(policy));
        assert_eq!(units, [Some(10); 3]);
        assert!(hold.settle("inner", 1) && hold.settle("outer", 2));
        // Of two with one name, it is the inner one.
        assert!(hold.settle("both", 3) && !hold.settle("both", 4));
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let mut service = outer.layer(inner.layer(handler));
    let response = at_once(service.call(plain())).expect("a response");
    drop(response);
    assert_eq!((left(&outer), left(&inner)), ([98, 90], [99, 97]));
}
