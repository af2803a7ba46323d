//! Each path of a request through a layer.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use tower::{Layer, Service};
use tower_throttle::{
    MemoryStore, OnMissingKey, OnStoreFailure, Policy, RateLimitLayer, TokenBucket, key,
};

use super::{assert_counted, is_pending};
use crate::support::web::{
    Down, Slow, api, as_grpc, ask, at_once, cost_in, day, get, layer_of, layer_with, plain,
    standing_store,
};

/// Fills in no time that a test takes.
fn four() -> Policy {
    Policy::new("four", TokenBucket::per_day(4)).shared()
}

#[test]
fn one_policy_in_memory_is_counted_on_the_direct_path() {
    let layer = RateLimitLayer::new(four().cost_by(cost_in("cost")));
    assert_counted(&layer.metrics(), "");
    for (cost, status) in [(1, 200), (0, 200), (3, 200), (1, 429), (9, 403)] {
        assert_eq!(ask(&layer, get([("cost", cost)])).status, status);
    }
    let expected = "allowed 3, denied 1, impossible 1, by store 5, four: allowed 2, four: near 1, \
         four: denied 1, four: impossible 1";
    assert_counted(&layer.metrics(), expected);
    // Clones and services count together.
    assert_counted(&layer.clone().metrics(), expected);
}

#[test]
fn several_policies_are_counted_once_each_and_the_request_once() {
    let (layer, _) = layer_of([api(), day()]);
    assert_eq!(ask(&layer, get([("api", 90)])).status, 200);
    assert_eq!(ask(&layer, get([("api", 20)])).status, 429);
    assert_eq!(ask(&layer, get([("api", 1), ("day", 9_000)])).status, 403);
    assert_counted(
        &layer.metrics(),
        "allowed 1, denied 1, impossible 1, by store 3, api: near 2, api: denied 1, \
         day: allowed 2, day: impossible 1",
    );
}

#[test]
fn policies_that_do_not_apply_are_not_counted() {
    let writes = four().when(|head| head.method() == Method::POST);
    let (layer, _) = layer_of([writes, day()]);
    ask(&layer, plain());
    ask(&layer, as_grpc(plain()));
    assert_counted(
        &layer.metrics(),
        "allowed 2, by store 2, four: allowed 1, day: allowed 2",
    );
}

#[test]
fn requests_that_nothing_limits_are_counted_as_such() {
    let skipping = || {
        let policy = Policy::new("skipping", TokenBucket::per_day(4)).key(key::header("x-api-key"));
        policy.on_missing_key(OnMissingKey::Skip)
    };
    // The first two decide directly, the others in general.
    for (layer, _) in [
        layer_of([four().when(|_| false)]),
        layer_of([skipping()]),
        layer_of([skipping(), four().when(|_| false)]),
        layer_with([four()], |builder| builder.when(|_| false)),
    ] {
        assert_eq!(ask(&layer, plain()).status, 200);
        assert_counted(&layer.metrics(), "not_limited 1");
    }
}

#[test]
fn requests_without_a_key_are_counted_for_the_policy_that_found_none() {
    let keyed = || Policy::new("keyed", TokenBucket::per_day(4)).key(key::header("x-api-key"));
    for (layer, _) in [layer_of([keyed()]), layer_of([day(), keyed()])] {
        assert_eq!(ask(&layer, plain()).status, 403);
        let grpc = ask(&layer, as_grpc(plain()));
        assert_eq!(grpc.field("grpc-status").as_deref(), Some("7"));
        let expected = "key_missing 2, keyed: key_missing 2";
        assert_counted(&layer.metrics(), expected);
    }
}

#[test]
fn a_store_that_fails_is_counted_by_what_decided_instead() {
    let down = |choice| {
        let (layer, _) = layer_with([four()], |builder| builder.on_store_failure(choice));
        layer.store(Down)
    };
    let deny = down(OnStoreFailure::Deny);
    assert_eq!(ask(&deny, plain()).status, 503);
    let grpc = ask(&deny, as_grpc(plain()));
    assert_eq!(grpc.field("grpc-status").as_deref(), Some("14"));
    let expected = "store_failed 2, by store_failure 2";
    assert_counted(&deny.metrics(), expected);

    let allow = down(OnStoreFailure::Allow);
    assert_eq!(ask(&allow, plain()).status, 200);
    let expected = "allowed 1, by store_failure 1";
    assert_counted(&allow.metrics(), expected);

    let local = down(OnStoreFailure::local());
    let statuses = [(); 5].map(|()| ask(&local, plain()).status.as_u16());
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    assert_counted(
        &local.metrics(),
        "allowed 4, denied 1, by local 5, four: allowed 3, four: near 1, four: denied 1",
    );
}

#[test]
fn a_store_that_answers_later_is_counted_when_it_answers() {
    let slow = Slow::new(standing_store().0);
    let layer = RateLimitLayer::new(four()).store(slow.clone());
    slow.gate.add_permits(5);
    for status in [200, 200, 200, 200, 429] {
        assert_eq!(ask(&layer, plain()).status, status);
    }
    let deny = four().on_store_failure(OnStoreFailure::Deny);
    let slow = Slow::new(Down);
    let failing = RateLimitLayer::new(deny).store(slow.clone());
    slow.gate.add_permits(1);
    assert_eq!(ask(&failing, plain()).status, 503);
    let expected = "store_failed 1, by store_failure 1";
    assert_counted(&failing.metrics(), expected);
    assert_counted(
        &layer.metrics(),
        "allowed 4, denied 1, by store 5, four: allowed 3, four: near 1, four: denied 1",
    );
}

#[test]
fn a_request_that_is_dropped_before_the_answer_is_cancelled() {
    let slow = Slow::new(MemoryStore::new());
    let layer = RateLimitLayer::new(four()).store(slow.clone());
    let stuck = |_| std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>();
    let mut service = layer.layer(tower::service_fn(stuck));
    // Never polled.
    drop(service.call(plain()));
    assert_counted(&layer.metrics(), "cancelled 1");
    let mut waiting = Box::pin(service.call(plain()));
    assert!(is_pending(&mut waiting));
    assert_counted(&layer.metrics(), "cancelled 1");
    drop(waiting);
    assert_counted(&layer.metrics(), "cancelled 2");

    // One that is dropped while the inner service works was admitted.
    slow.gate.add_permits(1);
    let mut admitted = Box::pin(service.call(plain()));
    assert!(is_pending(&mut admitted));
    drop(admitted);
    assert_counted(
        &layer.metrics(),
        "cancelled 2, allowed 1, by store 1, four: allowed 1",
    );
}

#[test]
fn a_layer_on_another_store_counts_from_0() {
    let layer = RateLimitLayer::builder().name("api").policy(four());
    let layer = layer.build().expect("a layer");
    ask(&layer, plain());
    let other = layer.clone().store(MemoryStore::new());
    assert_counted(&other.metrics(), "");
    assert_eq!(other.metrics().limiter(), "api");
    assert_eq!(layer.metrics().requests.total(), 1);
}

/// What the layer's own buckets are asked for is no request.
#[test]
fn looking_at_the_buckets_of_a_request_counts_nothing() {
    let (layer, _) = layer_of([api()]);
    let request = plain();
    let buckets = layer.buckets(&(&request).into()).expect("a key");
    at_once(async {
        let _ = buckets.peek().await.expect("a decision");
        let _ = buckets.debit(5).await.expect("a decision");
        let _ = buckets.credit(5).await.expect("a decision");
        buckets.reset().await.expect("a store");
    });
    assert_counted(&layer.metrics(), "");
}
