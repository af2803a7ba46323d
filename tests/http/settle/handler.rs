//! A handler settles by itself, with the handle in the extensions of its request.

use super::{left, left_of, window};
use crate::prelude::*;

/// A policy whose requests are settled by the handler: it holds 10 of 100 units.
fn by_handler(name: &str) -> Policy {
    let policy = window(name, 100).cost(10);
    policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd)
}

/// Sends a request to a handler that does this with the handle.
#[track_caller]
fn handled(layer: &RateLimitLayer, handler: impl Fn(Hold) + Clone) -> Answer {
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        let hold: &Hold = request.extensions().get().expect("a handle");
        handler(hold.clone());
        hello(request)
    });
    ask_service(layer.layer(inner), plain())
}

#[test]
fn the_first_settlement_of_each_policy_wins() {
    let (layer, _) = layer_of([by_handler("one"), window("plain", 10), by_handler("two")]);
    handled(&layer, |hold| {
        let held = ["one", "plain", "other"].map(|policy| hold.units(policy));
        assert_eq!(held, [Some(10), None, None]);
        assert!(hold.settle("one", 3) && hold.release("two"));
        let other = hold.clone();
        assert!(!other.settle("one", 7) && !hold.settle("one", 3) && !hold.release("one"));
        assert!(!hold.settle("plain", 1) && !hold.release("other"));
    });
    assert_eq!(left(&layer), [97, 9, 100]);
}

#[test]
fn the_settler_is_not_asked_about_what_the_handler_has_settled() {
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("it is settled") });
    let (layer, _) = layer_of([policy]);
    let answer = handled(&layer, |hold| assert!(hold.settle("units", 4)));
    // The response tells what is left after it.
    let field = answer.field("ratelimit");
    assert_eq!(field.as_deref(), Some(r#""units";r=96;t=3600"#));
    assert_eq!(left_of(&layer), 96);
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
    let policy = Policy::new("units", FixedWindow::per_hour(9));
    let policy = policy.key(|_: &RequestHead<'_>| Some("s3cret".into()));
    let (layer, _) = layer_of([policy.settle_by(|_: &Outcome<'_>| Settle::Full)]);
    handled(&layer, |hold| {
        let shown = format!("{hold:?}");
        let hides_the_key = shown.contains("units") && !shown.contains("s3cret");
        assert!(hides_the_key, "{shown}");
    });
}

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
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let mut service = outer.layer(inner.layer(handler));
    let response = at_once(service.call(plain())).expect("a response");
    drop(response);
    assert_eq!((left(&outer), left(&inner)), ([98, 90], [99, 97]));
}
