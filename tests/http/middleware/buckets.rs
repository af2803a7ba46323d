//! `RateLimitLayer::buckets`: debits and credits by the layer's own keys.

use crate::prelude::*;

fn from(key: &str) -> Request<Full<Bytes>> {
    get([("x-api-key", key)])
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
    let (layer, _) = layer_of([tokens().key(key::header("x-api-key"))]);
    let limiter = Limiter::new(standing_store().0, tokens());
    let ann = buckets_of(&layer, &from("ann"));
    for units in [30, 60, 50, 0, 500, 1] {
        let both = [at_once(ann.debit(units)), at_once(limiter.debit(7, units))];
        let [of_layer, of_limiter] = both.map(|decision| format!("{:?}", decision.unwrap()));
        assert_eq!(of_layer, of_limiter);
        let both = [at_once(ann.credit(5)), at_once(limiter.credit(7, 5))];
        let [of_layer, of_limiter] = both.map(|refund| format!("{:?}", refund.unwrap()));
        assert_eq!(of_layer, of_limiter);
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
    let costly = Policy::new("costly", TokenBucket::per_minute(100)).cost(9);
    let posts = Policy::new("posts", TokenBucket::per_minute(100));
    // The quota that a request chooses.
    let tier: Quota = "fixed window of 500 per day".parse().unwrap();
    let (layer, _) = layer_of([
        costly.key(key::header("x-api-key")),
        Policy::new("all", FixedWindow::per_day(100))
            .quota_by(move |_| tier)
            .shared(),
        posts.when(|head| head.method() == Method::POST).shared(),
    ]);
    let ann = buckets_of(&layer, &from("ann"));
    let debit = at_once(ann.debit(20)).unwrap();
    assert_eq!(left(&debit), [("costly", 80), ("all", 480)]);
    let refund = at_once(ann.credit(15)).unwrap();
    assert_eq!(refund.refunded(), 15);
    assert_eq!(left(refund.decision()), [("costly", 95), ("all", 495)]);
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
    let posts = |head: &RequestHead<'_>| head.method() == Method::POST;
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
fn an_error_of_the_store_is_returned() {
    let (layer, _) = layer_with([tokens().shared()], |builder| {
        builder.on_store_failure(OnStoreFailure::Deny)
    });
    let buckets = buckets_of(&layer.store(Down), &from("ann"));
    assert!(at_once(buckets.debit(1)).is_err());
    assert!(at_once(buckets.credit(1)).is_err());
}
