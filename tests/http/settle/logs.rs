//! What an operator reads about settlers that do not work: one line each.

use super::{answered, window};
use crate::{logged::logged, prelude::*};

fn ask_with(layer: &RateLimitLayer, field: &'static str, value: &'static str) {
    answered(layer, || {
        let response = Response::builder().header(field, value);
        response.body(Full::<Bytes>::default()).unwrap()
    });
}

#[test]
fn a_cost_that_is_no_number_and_a_settler_that_panics_are_logged_once() {
    let field = "x-cost-of-the-log-test";
    let by_field = |name| window(name, 100).settle_by(settle::header(field));
    let (layer, _) = layer_of([by_field("units")]);
    let log = logged(|| {
        ask_with(&layer, field, "7");
        // A response without the field is no mistake: errors have none.
        ask_with(&layer, "x-other", "7");
        for _ in 0..3 {
            ask_with(&layer, field, "s3cret");
        }
        ask_with(&layer.clone(), field, "-1");
    });
    let parts = "WARN|tower_throttle::wiring|`x-cost-of-the-log-test` is not one whole number";
    assert_one_line(&log, &format!("{parts}|policy \"units\""));
    assert!(!log[0].contains("s3cret"), "{log:?}");
    // Another policy may read it from another handler.
    let (layer, _) = layer_of(["units", "others"].map(by_field));
    let log = logged(|| (0..3).for_each(|_| ask_with(&layer, field, "-1")));
    assert_one_line(&log, &format!("{parts}|policy \"others\""));

    let failures = window("the log test of a status", 100).settle_by(settle::failures());
    let (layer, _) = layer_of([failures]);
    let log = logged(|| (0..3).for_each(|_| ask_with(&layer, "grpc-status", "ok")));
    let parts = "WARN|`grpc-status` is not one whole number|the log test of a status";
    assert_one_line(&log, parts);

    let policy = window("the log test", 100);
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("a bug") });
    let (layer, _) = layer_of([policy]);
    let log = logged(|| (0..3).for_each(|_| ask_with(&layer, "x-other", "7")));
    let parts = r#"WARN|tower_throttle::wiring|`settle_by(..)` of policy "the log test" panicked"#;
    assert_one_line(&log, parts);
}
