//! `RateLimitLayer::buckets`: debits and credits by the layer's own keys.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_throttle::{
    Buckets, Concurrency, Decision, FixedWindow, Limiter, OnStoreFailure, Penalty, Policy, Quota,
    RateLimitLayer, RequestHead, TokenBucket, key,
};

use crate::support::web::{Down, ask, at_once, get, layer_of, layer_with, standing_store};

fn from(key: &str) -> Request<Full<Bytes>> {
    get([("x-api-key", key)])
}

fn buckets_of(layer: &RateLimitLayer, request: &Request<Full<Bytes>>) -> Buckets {
    layer.buckets(&RequestHead::from(request)).unwrap()
}

fn left(decision: &Decision) -> Vec<(&str, u64)> {
    let policies = decision.policies();
    policies
        .map(|policy| (policy.name(), policy.remaining()))
        .collect()
}

fn tokens() -> Policy {
    Policy::new("tokens", TokenBucket::per_minute(100)).max_debt(100)
}

#[test]
fn a_debit_and_a_credit_move_what_a_limiter_moves() {
    let (store, _) = standing_store();
    let (layer, _) = layer_with([tokens().key(key::header("x-api-key"))], |builder| {
        builder.store(store.clone())
    });
    let limiter = Limiter::new(standing_store().0, tokens());
    let ann = buckets_of(&layer, &from("ann"));
    for units in [30, 60, 50, 0, 500, 1] {
        let (of_layer, of_limiter) = (at_once(ann.debit(units)), at_once(limiter.debit(7, units)));
        assert_eq!(
            format!("{:?}", of_layer.unwrap()),
            format!("{:?}", of_limiter.unwrap())
        );
        let (of_layer, of_limiter) = (at_once(ann.credit(5)), at_once(limiter.credit(7, 5)));
        assert_eq!(
            format!("{:?}", of_layer.unwrap()),
            format!("{:?}", of_limiter.unwrap())
        );
    }
    // Another caller's bucket is unchanged.
    let bob = at_once(buckets_of(&layer, &from("bob")).peek()).unwrap();
    assert_eq!(left(&bob), [("tokens", 100)]);
    // The layer denies the caller in debt.
    assert_eq!(ask(&layer, from("ann")).status, 429);
    assert_eq!(ask(&layer, from("bob")).status, 200);
}

#[test]
fn units_move_in_every_policy_that_applies_whatever_a_request_costs() {
    let key = || key::header("x-api-key");
    let costly = Policy::new("costly", TokenBucket::per_minute(100)).cost(9);
    let posts = Policy::new("posts", TokenBucket::per_minute(100));
    let (layer, _) = layer_of([
        costly.key(key()),
        Policy::new("all", FixedWindow::per_day(100)).shared(),
        posts
            .key(key())
            .when(|head| head.method() == http::Method::POST),
    ]);
    let ann = buckets_of(&layer, &from("ann"));
    assert_eq!(
        left(&at_once(ann.debit(20)).unwrap()),
        [("costly", 80), ("all", 80)]
    );
    let refund = at_once(ann.credit(15)).unwrap();
    assert_eq!(refund.refunded(), 15);
    assert_eq!(left(refund.decision()), [("costly", 95), ("all", 95)]);
    assert_eq!(at_once(ann.credit(15)).unwrap().refunded(), 5);
}

/// Permits of a request are released when its response ends.
#[test]
fn permits_are_left_out() {
    let (layer, _) = layer_of([
        Policy::new("few", Concurrency::new(2)).shared(),
        tokens().shared(),
    ]);
    let buckets = buckets_of(&layer, &from("ann"));
    assert_eq!(left(&at_once(buckets.debit(40)).unwrap()), [("tokens", 60)]);
    assert_eq!(at_once(buckets.credit(10)).unwrap().refunded(), 10);
    let peek = at_once(buckets.peek()).unwrap();
    assert_eq!(left(&peek), [("few", 2), ("tokens", 70)]);

    let (layer, _) = layer_of([Policy::new("few", Concurrency::new(2)).shared()]);
    let buckets = buckets_of(&layer, &from("ann"));
    let debit = at_once(buckets.debit(40)).unwrap_err();
    let credit = at_once(buckets.credit(40)).unwrap_err();
    assert!(debit.is_unsupported() && credit.is_unsupported());
}

/// What a handler does must not depend on which policies apply to its request.
#[test]
fn what_no_policy_that_applies_is_asked_does_nothing() {
    let posts = |head: &RequestHead<'_>| head.method() == http::Method::POST;
    let (layer, _) = layer_of([
        tokens().when(posts).shared(),
        Policy::new("bans", Penalty::after(1)).when(posts).shared(),
        Policy::new("few", Concurrency::new(2)).shared(),
    ]);
    let buckets = buckets_of(&layer, &from("ann"));
    assert!(at_once(buckets.debit(400)).unwrap().is_allowed());
    assert_eq!(at_once(buckets.credit(40)).unwrap().refunded(), 0);
    assert_eq!(at_once(buckets.strike(9)).unwrap().charged(), 0);
    at_once(buckets.ban(Duration::from_secs(60))).unwrap();
    let post = Request::post("/").body(Full::<Bytes>::default()).unwrap();
    let peek = at_once(buckets_of(&layer, &post).peek()).unwrap();
    assert_eq!(left(&peek)[..2], [("tokens", 100), ("bans", 1)]);
}

#[test]
fn the_quota_that_a_request_chooses_is_debited() {
    let [free, paid] =
        [100, 500].map(|limit| Quota::try_from(FixedWindow::per_day(limit)).unwrap());
    let tier = move |head: &RequestHead<'_>| match head.headers().contains_key("paid") {
        true => paid,
        false => free,
    };
    let policy = Policy::new("tokens", free).key(key::header("x-api-key"));
    let (layer, _) = layer_of([policy.quota_by(tier)]);
    let request = get([("x-api-key", "ann"), ("paid", "yes")]);
    let debit = at_once(buckets_of(&layer, &request).debit(400)).unwrap();
    assert_eq!(
        (debit.charged(), left(&debit)),
        (400, vec![("tokens", 100)])
    );
}

#[test]
fn an_error_of_the_store_is_returned() {
    let (layer, _) = layer_with([tokens().shared()], |builder| {
        builder.on_store_failure(OnStoreFailure::Deny)
    });
    let buckets = buckets_of(&layer.store(Down), &from("ann"));
    assert!(at_once(buckets.debit(1)).is_err());
    assert!(at_once(buckets.credit(1)).is_err());
}
