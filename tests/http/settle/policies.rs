//! Several policies, tiers, costs that requests choose, shadow policies, and layers in layers.

use super::{as_asked, ask_for, dropped::begin, left, left_of, window};
use crate::prelude::*;

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
    let [free, paid] = ["fixed window of 10 per hour", "1000 per hour"]
        .map(|quota| quota.parse::<Quota>().expect("a quota"));
    let tier = move |head: &RequestHead<'_>| match head.headers().contains_key("x-paid") {
        true => paid,
        false => free,
    };
    let policy = window("tier", 10).quota_by(tier);
    let (layer, _) = layer_of([policy.settle_by(settle::failures())]);
    for (field, all) in [("x-free", 10), ("x-paid", 1_000)] {
        for (status, charged) in [(200, 0), (404, 1)] {
            let request = get([(field, "1"), ("answer", &status.to_string())]);
            let buckets = buckets_of(&layer, &request);
            let answer = ask_service(layer.layer(service_fn(as_asked)), request);
            assert_eq!(answer.status, status);
            let decision = at_once(buckets.peek()).expect("a decision");
            assert_eq!(crate::support::left_of(&decision), [all - charged]);
        }
    }
}

#[tokio::test]
async fn a_tier_that_cannot_hold_is_charged_when_it_is_taken() {
    let layer = |tier: &str| {
        let tier: Quota = tier.parse().expect("a quota");
        let policy = window("tier", 10).quota_by(move |_| tier);
        layer_of([policy.settle_by(settle::failures())]).0
    };
    let permits = layer("1 at once");
    let begun = begin(&permits);
    assert_eq!(ask_for(&permits, 200).status, 429);
    drop(begun);
    for _ in 0..3 {
        assert_eq!(ask_for(&permits, 404).status, 404);
    }
    let paced = layer("leaky bucket of 1 per hour, queue 0");
    assert_eq!(ask_for(&paced, 200).status, 200);
    assert_eq!(ask_for(&paced, 200).status, 429);
}

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
            ready(Ok::<_, Infallible>(response))
        });
        let answer = ask_service(outer.layer(inner.layer(handler)), plain());
        assert_eq!(answer.field("x-cost"), None);
        assert_eq!((left_of(&outer), left_of(&inner)), (remaining, 93));
    }
}

/// The request did not reach the handler, so it was no failure. Clients see no shadow policy.
#[test]
fn a_shadow_policy_settles_what_another_policy_denies() {
    for (new, remaining) in [
        (window("new", 10).settle_by(settle::failures()), 9),
        (window("new", 10).settle_by(settle::status([404, 429])), 6),
    ] {
        let (layer, _) = layer_of([window("old", 1), new.shadow()]);
        for expected in [404, 429, 429, 429] {
            let answer = ask_for(&layer, 404);
            assert_eq!(answer.status, expected);
            assert!(!answer.field("ratelimit").expect("it").contains("new"));
        }
        let buckets = buckets_of(&layer, &plain());
        let decision = at_once(buckets.peek()).expect("a decision");
        let left = decision.shadow_policies().map(|policy| policy.remaining());
        assert_eq!(left.collect::<Vec<_>>(), [remaining]);
    }
}

/// A layer that waits for room asks again, and holds when there is room: because others ended, or
/// because tokens flowed in, though none are reserved.
#[tokio::test(start_paused = true)]
async fn a_request_may_wait_for_what_others_hold_and_for_tokens() {
    let tokens = || Policy::new("units", TokenBucket::per_second(10)).shared();
    for (policy, to, remaining) in [
        (window("units", 10), Settle::Release, 10),
        (tokens(), Settle::Release, 10),
        (tokens(), Settle::Full, 0),
    ] {
        let policy = policy.cost(10).settle_by(move |_: &Outcome<'_>| to);
        let wait = Duration::from_secs(30);
        let (layer, clock) = layer_with([policy], |builder| builder.wait_up_to(wait));
        let first = begin(&layer);
        let second = layer.layer(service_fn(as_asked)).oneshot(plain());
        let second = tokio::spawn(second);
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        if to == Settle::Full {
            tokio::task::yield_now().await;
            assert!(!second.is_finished());
            clock.advance(Duration::from_secs(1));
        }
        let response = second.await.unwrap().expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(left_of(&layer), remaining);
    }
}
