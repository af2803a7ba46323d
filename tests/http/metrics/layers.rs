//! Each path of a request through a layer.

use super::assert_counted;
use crate::{prelude::*, settle::dropped::begin};

fn four() -> Policy {
    Policy::new("four", TokenBucket::per_day(4)).shared()
}

fn keyed() -> Policy {
    Policy::new("keyed", TokenBucket::per_day(4)).key(key::header("x-api-key"))
}

/// On the direct path, with several policies, and over gRPC, which denies as HTTP does.
#[test]
fn each_request_and_each_policy_that_applies_is_counted_once() {
    let writes = four().when(|head| head.method() == Method::POST);
    let costly = four().cost_by(cost_in("api"));
    let slow = Slow::new(standing_store().0);
    slow.gate.add_permits(9);
    let later = layer_of([costly.clone()]).0.store(slow);
    let of_four = "allowed 3, denied 1, impossible 1, by store 5, four: allowed 2, four: near 1, \
         four: denied 1, four: impossible 1";
    for (layer, costs, expected) in [
        (RateLimitLayer::new(costly), vec![1, 0, 3, 1, 9], of_four),
        (later, vec![1, 0, 3, 1, 9], of_four),
        (
            layer_of([api(), day()]).0,
            vec![90, 20, 101],
            "allowed 1, denied 1, impossible 1, by store 3, api: near 1, api: denied 1, \
             api: impossible 1, day: allowed 3",
        ),
        (
            layer_of([writes, day()]).0,
            vec![1, 1],
            "allowed 2, by store 2, four: allowed 1, day: allowed 2",
        ),
        (
            layer_of([keyed()]).0,
            vec![1, 1],
            "key_missing 2, keyed: key_missing 2",
        ),
        (
            layer_of([day(), keyed()]).0,
            vec![1, 1],
            "key_missing 2, keyed: key_missing 2",
        ),
    ] {
        assert_counted(&layer.metrics(), "");
        for (at, cost) in costs.into_iter().enumerate() {
            let request = get([("api", cost)]);
            let request = if at == 1 { as_grpc(request) } else { request };
            ask(&layer, request);
        }
        // Clones and services count together, and layers on another store for themselves.
        assert_counted(&layer.clone().metrics(), expected);
        assert_counted(&layer.clone().store(MemoryStore::new()).metrics(), "");
        // What the layer's own buckets are asked for is no request.
        let request = get([("x-api-key", "ann")]);
        let buckets = buckets_of(&layer, &request);
        at_once(async {
            let _ = buckets.peek().await.expect("a decision");
            let _ = buckets.debit(5).await.expect("a decision");
            let _ = buckets.credit(5).await.expect("a decision");
            buckets.reset().await.expect("a store");
        });
        assert_counted(&layer.metrics(), expected);
    }
}

#[test]
fn requests_that_nothing_limits_are_counted_as_such() {
    let skipping = || keyed().on_missing_key(OnMissingKey::Skip);
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

/// At once or later, over HTTP and gRPC.
#[test]
fn a_store_that_fails_is_counted_by_what_decided_instead() {
    for (choice, expected) in [
        (OnStoreFailure::Deny, "store_failed 5, by store_failure 5"),
        (OnStoreFailure::Allow, "allowed 5, by store_failure 5"),
        (
            OnStoreFailure::local(),
            "allowed 4, denied 1, by local 5, four: allowed 3, four: near 1, four: denied 1",
        ),
    ] {
        let later = Slow::new(Down);
        later.gate.add_permits(5);
        let (layer, _) = layer_with([four()], |builder| builder.on_store_failure(choice));
        for layer in [layer.clone().store(Down), layer.store(later)] {
            ask(&layer, as_grpc(plain()));
            for _ in 0..4 {
                ask(&layer, plain());
            }
            assert_counted(&layer.metrics(), expected);
        }
    }
}

#[test]
fn a_request_that_is_dropped_before_the_answer_is_cancelled() {
    let slow = Slow::new(MemoryStore::new());
    let layer = RateLimitLayer::new(four()).store(slow.clone());
    for (answers, is_polled, expected) in [
        (0, false, "cancelled 1"),
        (0, true, "cancelled 2"),
        // One that is dropped while the inner service works was admitted.
        (
            1,
            true,
            "cancelled 2, allowed 1, by store 1, four: allowed 1",
        ),
    ] {
        slow.gate.add_permits(answers);
        if is_polled {
            drop(begin(&layer));
        } else {
            drop(layer.layer(service_fn(hello)).call(plain()));
        }
        assert_counted(&layer.metrics(), expected);
    }
}
