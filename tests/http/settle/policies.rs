//! Several policies, tiers, costs that requests choose, shadow policies, and layers in layers.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Outcome, Policy, Quota, RequestHead, Settle,
    TokenBucket, settle,
};

use super::{as_asked, ask_for, dropped::begin, left, left_of, window};
use crate::support::web::{ask, ask_service, at_once, cost_in, get, layer_of, layer_with, plain};

fn exactly(units: u64) -> impl settle::Settler {
    move |_: &Outcome<'_>| Settle::Units(units)
}

#[test]
fn each_policy_is_settled_by_its_own_settler() {
    let policies = [
        window("failures", 10).settle_by(settle::failures()),
        window("plain", 10).cost(2),
        window("guesses", 10).settle_by(settle::status([404])),
        window("units", 10).cost(5).settle_by(exactly(3)),
    ];
    let (layer, _) = layer_of(policies);
    ask_for(&layer, 404);
    assert_eq!(left(&layer), [9, 8, 9, 7]);
    ask_for(&layer, 500);
    assert_eq!(left(&layer), [8, 6, 9, 4]);
    // The last one cannot hold its cost, so none is charged.
    assert_eq!(ask_for(&layer, 404).status, 429);
    assert_eq!(left(&layer), [8, 6, 9, 4]);
}

#[test]
fn the_cost_that_a_request_chooses_is_held() {
    let policy = window("units", 100).cost_by(cost_in("cost"));
    let (layer, _) =
        layer_of([policy.settle_by(|outcome: &Outcome<'_>| Settle::Units(outcome.held() / 2))]);
    for (cost, remaining) in [(40, 80), (80, 40), (0, 40), (7, 37)] {
        let answer = ask(&layer, get([("cost", cost)]));
        assert_eq!(answer.status, 200);
        assert_eq!(left_of(&layer), remaining);
    }
    assert_eq!(ask(&layer, get([("cost", 38)])).status, 429);
    assert_eq!(ask(&layer, get([("cost", 101)])).status, 403);
}

#[test]
fn tiers_settle_by_the_quota_of_the_request() {
    let free: Quota = FixedWindow::per_hour(10).try_into().unwrap();
    let paid: Quota = TokenBucket::per_hour(1_000).try_into().unwrap();
    let policy = window("tier", 10).quota_by(move |head| match head.headers().get("x-paid") {
        Some(_) => paid,
        None => free,
    });
    let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
    for (field, all) in [("x-free", 10), ("x-paid", 1_000)] {
        let left = || {
            let request = get([(field, "1")]);
            let buckets = layer.buckets(&RequestHead::from(&request)).expect("keys");
            let decision = at_once(buckets.peek()).expect("a decision");
            decision
                .policies()
                .map(|policy| policy.remaining())
                .sum::<u64>()
        };
        assert_eq!(left(), all);
        for (status, charged) in [(200, 0), (404, 1)] {
            let request = get([(field, "1"), ("answer", &status.to_string())]);
            let answer = ask_service(layer.layer(service_fn(as_asked)), request);
            assert_eq!((answer.status.as_u16(), left()), (status, all - charged));
        }
    }
}

/// A tier that cannot hold is charged as without a settler.
#[tokio::test]
async fn a_tier_that_cannot_hold_is_charged_when_it_is_taken() {
    let permits: Quota = Concurrency::new(1).try_into().unwrap();
    let policy = Policy::new("tier", FixedWindow::per_hour(10)).shared();
    let policy = policy.quota_by(move |_| permits);
    let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
    let begun = begin(&layer);
    assert_eq!(ask_for(&layer, 200).status, 429);
    drop(begun);
    for _ in 0..3 {
        assert_eq!(ask_for(&layer, 404).status, 404);
    }

    let paced: Quota = LeakyBucket::per_hour(1).queue(0).try_into().unwrap();
    let policy = Policy::new("tier", FixedWindow::per_hour(10)).shared();
    let policy = policy.quota_by(move |_| paced);
    let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
    assert_eq!(ask_for(&layer, 200).status, 200);
    assert_eq!(ask_for(&layer, 200).status, 429);
}

/// Permits and units that are held, of one request.
#[tokio::test]
async fn a_concurrency_policy_and_one_that_settles() {
    let in_flight = Policy::new("in-flight", Concurrency::new(2)).shared();
    let failures = window("failures", 3).settle_by(settle::failures());
    let (layer, _) = layer_of([in_flight, failures]);
    let begun = [begin(&layer), begin(&layer)];
    assert_eq!(left(&layer), [0, 1]);
    assert_eq!(ask_for(&layer, 200).status, 429);
    drop(begun);
    assert_eq!(left(&layer), [2, 1]);
    for _ in 0..5 {
        assert_eq!(ask_for(&layer, 200).status, 200);
    }
    assert_eq!(left(&layer), [2, 1]);
    assert_eq!(ask_for(&layer, 404).status, 404);
    assert_eq!(ask_for(&layer, 404).status, 429);
    assert_eq!(left(&layer), [2, 0]);
}

#[test]
fn a_layer_in_a_layer_settles_its_own() {
    let (outer, _) = layer_of([window("outer", 10).settle_by(settle::status([404]))]);
    let (inner, _) = layer_of([window("inner", 10).cost(3).settle_by(settle::failures())]);
    let ask_both = |status: u16| {
        let service = outer.layer(inner.layer(service_fn(as_asked)));
        ask_service(service, get([("answer", status)]))
    };
    assert_eq!(ask_both(404).status, 404);
    assert_eq!((left_of(&outer), left_of(&inner)), (9, 7));
    let answer = ask_both(500);
    assert_eq!((left_of(&outer), left_of(&inner)), (9, 4));
    let fields = r#""inner";r=4;t=3600, "outer";r=9;t=3600"#;
    assert_eq!(answer.field("ratelimit").as_deref(), Some(fields));
}

/// The field of the inner layer is removed before the outer one sees it, unless it is passed on.
#[test]
fn an_inner_layer_removes_the_cost_that_an_outer_one_would_read() {
    let settler = settle::header("x-cost");
    for (inner, remaining) in [(settler.clone(), 80), (settler.clone().pass_on(), 93)] {
        let (outer, _) = layer_of([window("outer", 100).cost(20).settle_by(settler.clone())]);
        let (inner, _) = layer_of([window("inner", 100).settle_by(inner)]);
        let handler = service_fn(|_: Request<Full<Bytes>>| {
            let response = Response::builder().header("x-cost", "7");
            let response = response.body(Full::<Bytes>::default()).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let answer = ask_service(outer.layer(inner.layer(handler)), plain());
        assert_eq!(answer.field("x-cost"), None);
        assert_eq!((left_of(&outer), left_of(&inner)), (remaining, 93));
    }
}

/// A shadow policy denies nothing, and counts what it would.
#[test]
fn a_shadow_policy_settles() {
    let shadow = || window("new", 2).settle_by(settle::failures()).shadow();
    for policies in [vec![shadow()], vec![window("old", 100), shadow()]] {
        let has_enforced = policies.len() > 1;
        let (layer, _) = match <[Policy; 2]>::try_from(policies) {
            Ok(both) => layer_of(both),
            Err(_) => layer_of([shadow()]),
        };
        for status in [200, 404, 200, 404, 200, 404] {
            let answer = ask_for(&layer, status);
            assert_eq!(answer.status.as_u16(), status);
            assert_eq!(answer.field("ratelimit").is_some(), has_enforced);
        }
        let counted = *layer.metrics().policy("new").expect("its numbers");
        assert_eq!(counted.shadow_denied, 2);
    }
}

/// The request did not reach the handler, so it was no failure.
#[test]
fn a_shadow_policy_settles_what_another_policy_denies() {
    let settlers: [(Policy, u64); 2] = [
        (window("new", 10).settle_by(settle::failures()), 9),
        (window("new", 10).settle_by(settle::status([404, 429])), 6),
    ];
    for (new, remaining) in settlers {
        let (layer, _) = layer_of([window("old", 1), new.shadow()]);
        assert_eq!(ask_for(&layer, 404).status, 404);
        for _ in 0..3 {
            assert_eq!(ask_for(&layer, 404).status, 429);
        }
        let buckets = layer.buckets(&RequestHead::from(&plain())).expect("keys");
        let decision = at_once(buckets.peek()).expect("a decision");
        let left = decision.shadow_policies().map(|policy| policy.remaining());
        assert_eq!(left.collect::<Vec<_>>(), [remaining]);
    }
}

#[test]
fn buckets_see_what_is_held_and_debit_beside_it() {
    let (layer, _) = layer_of([window("units", 10)
        .cost(4)
        .max_debt(0)
        .settle_by(settle::failures())]);
    let begun = begin(&layer);
    let buckets = layer.buckets(&RequestHead::from(&plain())).expect("keys");
    assert_eq!(buckets.storage_keys(), [] as [String; 0]);
    // What is held is not there to be charged.
    let debit = at_once(buckets.debit(9)).expect("a decision");
    assert_eq!((debit.charged(), debit.uncharged()), (6, 3));
    assert_eq!(at_once(buckets.credit(2)).expect("a credit").refunded(), 2);
    drop(begun);
    assert_eq!(left_of(&layer), 2);
}

/// A layer that waits for room asks again, and holds when there is room.
#[tokio::test(start_paused = true)]
async fn a_request_may_wait_for_what_others_hold() {
    for policy in [
        window("units", 10),
        Policy::new("units", TokenBucket::per_hour(10)).shared(),
    ] {
        let policy = policy.cost(10);
        let policy = policy.settle_by(|_: &Outcome<'_>| Settle::Release);
        let (layer, _) = layer_with([policy], |builder| {
            builder.wait_up_to(Duration::from_secs(30))
        });
        let first = begin(&layer);
        let second = tokio::spawn({
            let service = layer.layer(service_fn(as_asked));
            tower::ServiceExt::oneshot(service, plain())
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        let response = second.await.unwrap().expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(left_of(&layer), 10);
    }
}

/// Tokens that flow in are waited for, too, though none are reserved.
#[tokio::test(start_paused = true)]
async fn a_request_that_holds_may_wait_for_tokens() {
    let policy = Policy::new("units", TokenBucket::per_second(10)).shared();
    let policy = policy.cost(10).settle_by(|_: &Outcome<'_>| Settle::Full);
    let (layer, clock) = layer_with([policy], |builder| {
        builder.wait_up_to(Duration::from_secs(30))
    });
    let service = || layer.layer(service_fn(as_asked));
    let first = tower::ServiceExt::oneshot(service(), plain()).await;
    assert_eq!(first.expect("a response").status(), 200);
    let started = tokio::time::Instant::now();
    let second = tokio::spawn(tower::ServiceExt::oneshot(service(), plain()));
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    clock.advance(Duration::from_secs(1));
    let response = second.await.unwrap().expect("a response");
    assert_eq!(response.status(), 200);
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(left_of(&layer), 0);
}
