//! The cost in a field of the response.

use super::{answered, left_of, window};
use crate::prelude::*;

fn points(name: &str) -> Policy {
    let policy = window(name, 100).cost(20);
    policy.settle_by(settle::header("X-Cost"))
}

fn ask_with(layer: &RateLimitLayer, values: &[&'static [u8]]) -> Answer {
    let mut fields = HeaderMap::new();
    for value in values {
        fields.append("x-cost", HeaderValue::from_bytes(value).expect("a value"));
    }
    answered(layer, || {
        let mut response = Response::new(Full::<Bytes>::from("hello"));
        *response.headers_mut() = fields.clone();
        response
    })
}

/// Several policies may read it. What cannot be owed is not charged.
#[test]
fn the_field_says_the_cost_and_clients_do_not_see_it() {
    for (value, remaining) in [
        (&b"0"[..], 100),
        (b"1", 99),
        (b"10", 90),
        (b"40", 60),
        (b"000007", 93),
        (b" 12 ", 88),
        (b"18446744073709551615", 0),
    ] {
        let (layer, _) = layer_of(["points", "more"].map(points));
        let answer = ask_with(&layer, &[value]);
        assert_eq!(super::left(&layer), [remaining; 2]);
        assert_eq!(answer.names(), ["ratelimit", "ratelimit-policy"]);
        let field = answer.field("ratelimit").expect("it");
        let start = format!(r#""points";r={remaining}"#);
        assert!(field.starts_with(&start), "{field}");
        assert_eq!(layer.metrics().unread.total(), 0);
    }
}

#[test]
fn a_value_that_is_no_cost_charges_what_is_held_and_is_counted() {
    let bad = "|-1|+1|1e3|1.5|0x10|7 units|1,2|1234567890123456789012345678901234567890|\
        18446744073709551616";
    let lines = bad.split('|').map(|line| vec![line.as_bytes()]);
    let others = [
        vec![],
        vec![&b"\xff\xfe"[..]],
        vec![b"1", b"1"],
        vec![b"1", b"2"],
    ];
    for values in lines.chain(others) {
        let (layer, _) = layer_of([points("points")]);
        let answer = ask_with(&layer, &values);
        assert_eq!(left_of(&layer), 80, "{values:?}");
        // It is removed all the same.
        assert_eq!(answer.field("x-cost"), None);
        // A response without the field is not a mistake: errors have none.
        let counted = u64::from(!values.is_empty());
        assert_eq!(layer.metrics().unread.cost, counted, "{values:?}");
        // A request is counted once.
        let (layer, _) = layer_of(["points", "more"].map(points));
        ask_with(&layer, &values);
        let unread = layer.metrics().unread;
        assert_eq!((unread.cost, unread.total()), (counted, counted));
    }
}

/// Clients must not see it, whichever requests the policy counts.
#[test]
fn the_field_is_removed_though_the_policy_does_not_apply() {
    let policy = window("points", 100).settle_by(settle::header("x-cost"));
    let (by_policy, _) = layer_of([policy.clone().when(|_| false)]);
    let (by_layer, _) = layer_with([policy.clone()], |builder| builder.when(|_| false));
    let (without_fields, _) = layer_with([policy.clone()], |builder| {
        builder.headers(HeaderFormat::None)
    });
    let (unwanted, _) = layer_with([policy], |builder| builder.headers_when(|_, _| false));
    for layer in [by_policy, by_layer, without_fields, unwanted] {
        assert_eq!(ask_with(&layer, &[b"3"]).names(), [] as [&str; 0]);
    }
}
