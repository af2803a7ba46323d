//! Which policies a request meets, and what they take.

use crate::prelude::*;

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
fn two_layers_of_one_store_share_buckets_by_name_and_those_of_two_stores_none() {
    let (store, _) = standing_store();
    let layer = |policy| RateLimitLayer::new(policy).store(store.clone());
    let (first, second) = (layer(by_key("api")), layer(by_key("api")));
    ask(&first, from("ann", 4));
    for (layer, caller, cost, expected) in [
        (&second, "ann", 4, r#""api";r=2;t=12"#),
        (&first, "ann", 0, r#""api";r=2;t=12"#),
        (&first.clone(), "ann", 0, r#""api";r=2;t=12"#),
        (&layer(by_key("web")), "ann", 0, r#""web";r=10;t=60"#),
        (&second, "bob", 0, r#""api";r=10;t=60"#),
        (
            &second.clone().store(standing_store().0),
            "ann",
            0,
            r#""api";r=10;t=60"#,
        ),
    ] {
        assert_eq!(left(&ask(layer, from(caller, cost))), expected);
    }
    let new = || RateLimitLayer::new(by_key("api"));
    let (first, second) = (new(), new());
    ask(&first, from("ann", 10));
    assert_eq!(ask(&first, from("ann", 1)).status, 429);
    assert_eq!(ask(&second, from("ann", 1)).status, 200);
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
    let [free, paid] = ["10 per minute", "600 per minute, burst 1000"]
        .map(|quota| quota.parse::<Quota>().expect("a quota"));
    let tier = move |head: &RequestHead<'_>| match head.headers().get("x-api-key") {
        Some(key) if key.as_bytes().starts_with(b"paid-") => paid,
        _ => free,
    };
    let (layer, _) = layer_of([by_key("tier").quota_by(tier)]);
    for (caller, limits, policies, eleven) in [
        ("ann", r#""tier";r=9;t=54"#, r#""tier";q=10;w=60"#, 403),
        (
            "paid-bob",
            r#""tier";r=999;t=100"#,
            r#""tier";q=600;w=60;tt-burst=1000"#,
            200,
        ),
    ] {
        let answer = ask(&layer, from(caller, 1));
        assert_eq!(left(&answer), limits);
        assert_eq!(answer.field("ratelimit-policy").unwrap(), policies);
        assert_eq!(ask(&layer, from(caller, 11)).status, eleven);
    }
}

#[test]
fn a_missing_key_charges_no_other_policy() {
    let (layer, _) = layer_of([api(), by_key("keyed")]);
    assert_eq!(ask(&layer, plain()).status, 403);
    let limits = left(&ask(&layer, from("ann", 0)));
    assert!(limits.starts_with(r#""api";r=99;"#), "{limits}");
}

#[test]
fn without_a_key_a_policy_can_be_skipped_or_shared_but_a_miswired_key_cannot() {
    let skipping = by_key("api").on_missing_key(OnMissingKey::Skip);
    let (layer, _) = layer_of([skipping, day()]);
    let answer = ask(&layer, get([("cost", 1_000)]));
    assert_eq!(left(&answer), r#""day";r=4999;t=86400"#);
    let answer = ask(&layer, from("ann", 1));
    assert_eq!(left(&answer), r#""api";r=9;t=54, "day";r=4998;t=86400"#);

    // Each caller with a key has a bucket of its own, whatever the key is.
    let everyone = |head: &RequestHead<'_>| {
        let key = head.headers().get("x-api-key");
        key.map(|_| Key::everyone())
    };
    for policy in [by_key("api"), by_key("api").key(everyone)] {
        let (layer, _) = layer_of([policy.on_missing_key(OnMissingKey::Share)]);
        for expected in [r#""api";r=6;t=36"#, r#""api";r=2;t=12"#] {
            assert_eq!(left(&ask(&layer, get([("cost", 4)]))), expected);
        }
        for key in ["ann", "?", "missing"] {
            assert_eq!(left(&ask(&layer, from(key, 0))), r#""api";r=10;t=60"#);
        }
    }

    for choice in [OnMissingKey::Skip, OnMissingKey::Share] {
        let policy = Policy::new("peer", TokenBucket::per_second(1)).on_missing_key(choice);
        assert_eq!(ask(&layer_of([policy]).0, plain()).status, 500);
    }
}

#[test]
fn the_peer_address_is_the_default_key() {
    let (layer, _) = layer_of([Policy::new("peer", TokenBucket::per_second(1))]);
    let from = |address: &str| {
        let mut request = plain();
        let address = address.parse().unwrap();
        request.extensions_mut().insert(PeerAddr(address));
        ask(&layer, request).status.as_u16()
    };
    assert_eq!(from("192.0.2.1:1000"), 200);
    assert_eq!(from("192.0.2.1:2000"), 429);
    assert_eq!(from("192.0.2.2:1000"), 200);
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
    let buckets = buckets_of(&layer, &head);
    assert_eq!(at_once(buckets.peek()).unwrap().policies().len(), 0);
}

#[test]
fn the_buckets_of_a_request_are_those_of_the_layer() {
    let everyone = Policy::new("everyone", TokenBucket::per_minute(100)).shared();
    let (layer, _) = layer_of([by_key("api"), everyone]);
    ask(&layer, from("ann", 7));
    ask(&layer, from("bob", 2));
    let of = |caller: &str| buckets_of(&layer, &from(caller, 0));
    let left = || ["ann", "bob"].map(|caller| left_of(&at_once(of(caller).peek()).unwrap()));
    // Peeking takes nothing.
    for _ in 0..3 {
        assert_eq!(left(), [[3, 98], [8, 98]]);
    }
    at_once(of("ann").reset()).unwrap();
    // A reset leaves what other callers have taken.
    assert_eq!(left(), [[10, 98], [8, 98]]);
    at_once(of("bob").reset_shared()).unwrap();
    assert_eq!(left(), [[10, 100], [8, 100]]);
    let of_nobody = layer.buckets(&RequestHead::from(&plain()));
    assert!(of_nobody.unwrap_err().is_missing());
    assert!(of("ann").storage_keys().is_empty());
}
