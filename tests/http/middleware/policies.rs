//! Which policies a request meets, and what they take.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use tower_throttle::{
    Key, OnMissingKey, Policy, Quota, RateLimitLayer, RequestHead, TokenBucket, key,
};

use crate::support::web::{
    Answer, api, ask, at_once, cost_in, day, get, layer_of, layer_with, plain, request,
    standing_store,
};

fn left(answer: &Answer) -> String {
    answer.field("ratelimit").unwrap_or_default()
}

/// A policy of 10 a minute by API key, with the cost that a request names.
fn by_key(name: &str) -> Policy {
    Policy::new(name, TokenBucket::per_minute(10))
        .key(key::header("x-api-key"))
        .cost_by(cost_in("cost"))
}

fn from(key: &str, cost: u64) -> Request<Full<Bytes>> {
    get([("x-api-key", key), ("cost", &cost.to_string())])
}

#[test]
fn two_layers_of_one_store_share_buckets_by_name() {
    let (store, _) = standing_store();
    let layer = |policy| {
        let builder = RateLimitLayer::builder().store(store.clone());
        builder.policy(policy).build().unwrap()
    };
    let (first, second) = (layer(by_key("api")), layer(by_key("api")));
    let other = layer(by_key("web"));
    ask(&first, from("ann", 4));
    assert_eq!(left(&ask(&second, from("ann", 4))), r#""api";r=2;t=12"#);
    assert_eq!(left(&ask(&first, from("ann", 0))), r#""api";r=2;t=12"#);
    assert_eq!(left(&ask(&other, from("ann", 0))), r#""web";r=10;t=60"#);
    assert_eq!(left(&ask(&second, from("bob", 0))), r#""api";r=10;t=60"#);
}

#[test]
fn layers_with_stores_of_their_own_share_nothing() {
    let layer = || RateLimitLayer::new(by_key("api"));
    let (first, second) = (layer(), layer());
    ask(&first, from("ann", 10));
    assert_eq!(ask(&first, from("ann", 1)).status, 429);
    assert_eq!(ask(&second, from("ann", 1)).status, 200);
    // A clone is the same layer. The same limits on another store are not.
    assert_eq!(ask(&first.clone(), from("ann", 1)).status, 429);
    let moved = first.store(standing_store().0);
    assert_eq!(ask(&moved, from("ann", 1)).status, 200);
}

#[test]
fn a_policy_that_does_not_apply_leaves_no_trace() {
    let (layer, _) = layer_of([by_key("writes").when(|head| head.method() == Method::POST)]);
    let answer = ask(&layer, from("ann", 1));
    answer.assert_is("HTTP/1.1 200 OK\n\nhello");
    let decision = answer
        .decision
        .expect("an empty one, for handlers that ask for it");
    assert!(decision.is_allowed() && decision.policies().len() == 0);
    // A policy that does not apply does not read its key either.
    ask(&layer, plain()).assert_is("HTTP/1.1 200 OK\n\nhello");
    let write = request(Method::POST, [("x-api-key", "ann")]);
    assert_eq!(left(&ask(&layer, write)), r#""writes";r=9;t=54"#);
}

#[test]
fn a_request_chooses_its_tier() {
    let free: Quota = TokenBucket::per_minute(10).try_into().unwrap();
    let paid: Quota = TokenBucket::per_minute(600)
        .burst(1_000)
        .try_into()
        .unwrap();
    let tier = move |head: &RequestHead<'_>| match head.headers().get("x-api-key") {
        Some(key) if key.as_bytes().starts_with(b"paid-") => paid,
        _ => free,
    };
    let (layer, _) = layer_of([by_key("tier").quota_by(tier)]);
    let answer = ask(&layer, from("ann", 1));
    assert_eq!(left(&answer), r#""tier";r=9;t=54"#);
    assert_eq!(
        answer.field("ratelimit-policy").unwrap(),
        r#""tier";q=10;w=60"#
    );
    let answer = ask(&layer, from("paid-bob", 1));
    assert_eq!(left(&answer), r#""tier";r=999;t=100"#);
    assert_eq!(
        answer.field("ratelimit-policy").unwrap(),
        r#""tier";q=600;w=60;tt-burst=1000"#
    );
    assert_eq!(ask(&layer, from("ann", 11)).status, 403);
    assert_eq!(ask(&layer, from("paid-bob", 11)).status, 200);
}

#[test]
fn a_cost_of_zero_checks_without_taking() {
    let (layer, _) = layer_of([by_key("api")]);
    for _ in 0..3 {
        let answer = ask(&layer, from("ann", 0));
        assert_eq!(left(&answer), r#""api";r=10;t=60"#);
    }
    ask(&layer, from("ann", 10));
    // A cost of 0 is admitted although nothing is left.
    let answer = ask(&layer, from("ann", 0));
    assert_eq!(
        (answer.status.as_u16(), left(&answer)),
        (200, r#""api";r=0;t=6"#.into())
    );
}

#[test]
fn a_fixed_cost_is_taken_by_each_request() {
    let policy = Policy::new("api", TokenBucket::per_minute(10)).cost(4);
    let (layer, _) = layer_of([policy.key(key::global())]);
    let seen: Vec<_> = (0..3).map(|_| left(&ask(&layer, plain()))).collect();
    assert_eq!(
        seen,
        [
            r#""api";r=6;t=36"#,
            r#""api";r=2;t=12"#,
            r#""api";r=2;t=12"#
        ]
    );
}

#[test]
fn a_missing_key_charges_no_other_policy() {
    let (layer, _) = layer_of([api(), by_key("keyed")]);
    assert_eq!(ask(&layer, plain()).status, 403);
    let answer = ask(&layer, from("ann", 0));
    assert!(
        left(&answer).starts_with(r#""api";r=99;"#),
        "{}",
        left(&answer)
    );
}

#[test]
fn without_a_key_a_policy_can_be_skipped() {
    let (layer, _) = layer_of([by_key("api").on_missing_key(OnMissingKey::Skip), day()]);
    let answer = ask(&layer, get([("cost", 1_000)]));
    assert_eq!(left(&answer), r#""day";r=4999;t=86400"#);
    let answer = ask(&layer, from("ann", 1));
    assert_eq!(left(&answer), r#""api";r=9;t=54, "day";r=4998;t=86400"#);
}

#[test]
fn without_a_key_requests_can_share_a_bucket() {
    let (layer, _) = layer_of([by_key("api").on_missing_key(OnMissingKey::Share)]);
    ask(&layer, get([("cost", 4)]));
    let answer = ask(&layer, get([("cost", 4)]));
    assert_eq!(left(&answer), r#""api";r=2;t=12"#);
    // Callers with a key have buckets of their own, whatever the key is.
    for key in ["ann", "?", "missing"] {
        assert_eq!(left(&ask(&layer, from(key, 0))), r#""api";r=10;t=60"#);
    }
}

#[test]
fn callers_without_a_key_do_not_share_the_bucket_of_everyone() {
    let named = |head: &RequestHead<'_>| head.headers().get("everyone").map(|_| Key::everyone());
    let policy = Policy::new("api", TokenBucket::per_minute(10)).key(named);
    let (layer, _) = layer_of([policy.on_missing_key(OnMissingKey::Share)]);
    assert_eq!(left(&ask(&layer, plain())), r#""api";r=9;t=54"#);
    let everyone = get([("everyone", "yes")]);
    assert_eq!(left(&ask(&layer, everyone)), r#""api";r=9;t=54"#);
}

#[test]
fn a_miswired_key_is_never_skipped_or_shared() {
    for choice in [OnMissingKey::Skip, OnMissingKey::Share] {
        let policy = Policy::new("peer", TokenBucket::per_second(1)).on_missing_key(choice);
        let (layer, _) = layer_of([policy]);
        assert_eq!(ask(&layer, plain()).status, 500);
    }
}

#[test]
fn the_peer_address_is_the_default_key() {
    let (layer, _) = layer_of([Policy::new("peer", TokenBucket::per_second(1))]);
    let from = |address: &str| {
        let mut request = plain();
        let address = address.parse().unwrap();
        request.extensions_mut().insert(key::PeerAddr(address));
        ask(&layer, request).status.as_u16()
    };
    assert_eq!(from("192.0.2.1:1000"), 200);
    assert_eq!(from("192.0.2.1:2000"), 429);
    assert_eq!(from("192.0.2.2:1000"), 200);
}

#[test]
fn shared_policies_are_one_bucket_for_all_callers() {
    let shared = Policy::new("all", TokenBucket::per_minute(2)).shared();
    let (layer, _) = layer_of([by_key("each"), shared]);
    let statuses = ["ann", "bob", "eve"].map(|key| ask(&layer, from(key, 1)).status.as_u16());
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_layer_leaves_out_requests_by_its_when() {
    let (layer, _) = layer_with([by_key("api"), by_key("web")], |builder| {
        builder.when(|head| head.uri().path() != "/health")
    });
    let asked = |path: &str| {
        let mut request = from("ann", 4);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    for _ in 0..5 {
        // A missing key does not matter there either.
        let health = Request::get("/health").body(Full::default()).unwrap();
        ask(&layer, health).assert_is("HTTP/1.1 200 OK\n\nhello");
        ask(&layer, asked("/health")).assert_is("HTTP/1.1 200 OK\n\nhello");
    }
    let answer = ask(&layer, asked("/"));
    assert_eq!(left(&answer), r#""api";r=6;t=36, "web";r=6;t=36"#);
    let head = asked("/health");
    let buckets = layer.buckets(&RequestHead::from(&head)).unwrap();
    assert_eq!(at_once(buckets.peek()).unwrap().policies().len(), 0);
}

#[test]
fn the_buckets_of_a_request_are_those_of_the_layer() {
    let everyone = Policy::new("everyone", TokenBucket::per_minute(100)).shared();
    let (layer, _) = layer_of([by_key("api"), everyone]);
    ask(&layer, from("ann", 7));
    ask(&layer, from("bob", 2));
    let of = |caller: &str| {
        let request = from(caller, 0);
        layer.buckets(&RequestHead::from(&request)).unwrap()
    };
    let left = |caller: &str| {
        let decision = at_once(of(caller).peek()).unwrap();
        let left: Vec<_> = decision
            .policies()
            .map(|policy| policy.remaining())
            .collect();
        left
    };
    // Peeking takes nothing.
    for _ in 0..3 {
        assert_eq!((left("ann"), left("bob")), (vec![3, 98], vec![8, 98]));
    }
    at_once(of("ann").reset()).unwrap();
    // A reset leaves what other callers have taken.
    assert_eq!((left("ann"), left("bob")), (vec![10, 98], vec![8, 98]));
    at_once(of("bob").reset_shared()).unwrap();
    assert_eq!((left("ann"), left("bob")), (vec![10, 100], vec![8, 100]));
    let anonymous = plain();
    assert!(
        layer
            .buckets(&RequestHead::from(&anonymous))
            .unwrap_err()
            .is_missing()
    );
    assert!(of("ann").storage_keys().is_empty());
}
