//! Which buckets go on.

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tower_throttle_config::Effect;

use super::{ask_plainly, limits_of, parameter, policy, replace};
use crate::support::prelude::*;

/// Two quotas of each algorithm.
const ALGORITHMS: [[&str; 2]; 6] = [
    ["10 per day", "20 per day"],
    ["leaky bucket of 10 per day", "leaky bucket of 20 per day"],
    ["fixed window of 10 per day", "fixed window of 20 per day"],
    [
        "sliding window of 10 per day",
        "sliding window of 20 per day",
    ],
    ["sliding log of 10 per day", "sliding log of 20 per day"],
    ["10 per day, refill at once", "20 per day, refill at once"],
];

fn remaining(answer: &crate::support::web::Answer) -> u64 {
    parameter(answer, "ratelimit", "r")
        .parse()
        .expect("a number")
}

#[test]
fn buckets_start_afresh_where_name_or_algorithm_change() {
    for [before, _] in ALGORITHMS {
        for [_, after] in ALGORITHMS {
            let is_kept = ALGORITHMS.contains(&[before, after]);
            let limits = limits_of(&policy("api", before));
            let layer = limits.layer("default").expect("a layer");
            ask_plainly(&layer);
            let effect = replace(&limits, &policy("api", after)).all()[0].effect;
            let left = remaining(&ask_plainly(&layer));
            // What the changes say is what happens.
            let expected = if effect == Effect::Kept { 18 } else { 19 };
            assert_eq!(left, expected, "{before} {after}");
            assert!(!is_kept || effect == Effect::Kept, "{before} {after}");

            let changes = replace(&limits, &policy("web", after));
            let effects = changes.all().iter().map(|change| change.effect);
            assert!(effects.take(2).eq([Effect::Gone, Effect::New]), "{changes}");
            assert_eq!(remaining(&ask_plainly(&layer)), 19, "{after}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_under_the_version_that_it_began_with() {
    let with_wait = |quota| {
        let layer = "[layer.default]\nwait_up_to = \"1h\"\n";
        format!("{}{layer}", policy("api", quota))
    };
    let limits = limits_of(&with_wait("1 per minute"));
    let layer = limits.layer("default").expect("a layer");
    let ask = || layer.layer(tower::service_fn(hello)).oneshot(plain());
    let policy_of = |answer: &http::Response<_>| answer.headers()["ratelimit-policy"].clone();
    ask().await.expect("a response");
    let started = Instant::now();
    let waiting = tokio::spawn(ask());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(layer.metrics().waiting, 1);

    replace(&limits, &with_wait("1000 per minute"));
    assert_eq!(layer.metrics().waiting, 1);
    let answer = ask().await.expect("a response");
    assert_eq!(policy_of(&answer), "\"api\";q=1000;w=60");
    let answer = waiting.await.expect("a task").expect("a response");
    assert_eq!(policy_of(&answer), "\"api\";q=1;w=60");
    let took = started.elapsed();
    assert!(took > Duration::from_secs(58), "{took:?}");
    let numbers = layer.metrics();
    assert_eq!((numbers.requests.allowed, numbers.waiting), (3, 0));
}

#[test]
fn a_permit_is_held_from_one_version_to_the_next() {
    let limits = limits_of(&policy("jobs", "1 at once"));
    let layer = limits.layer("default").expect("a layer");
    let mut service = layer.layer(tower::service_fn(
        |_: http::Request<http_body_util::Full<bytes::Bytes>>| {
            std::future::pending::<Result<http::Response<String>, std::convert::Infallible>>()
        },
    ));
    let mut running = Box::pin(Service::call(&mut service, plain()));
    assert!(poll(&mut running).is_pending());
    assert_eq!(ask_plainly(&layer).status, 429);

    replace(&limits, &policy("jobs", "2 at once"));
    let mut another = Box::pin(Service::call(&mut service, plain()));
    assert!(poll(&mut another).is_pending());
    assert_eq!(ask_plainly(&layer).status, 429);
    drop(running);
    assert_eq!(ask_plainly(&layer).status, 200);
}

#[tokio::test]
async fn what_a_request_holds_is_settled_by_the_version_that_it_began_with() {
    let settled = |quota, status: u16| {
        let settler = format!("settle_by = {{ status = [{status}] }}\n");
        policy("api", quota) + &settler
    };
    let limits = limits_of(&settled("fixed window of 2 per day", 401));
    let layer = limits.layer("default").expect("a layer");
    let left = async || {
        let buckets = layer.buckets(&RequestHead::from(&plain()));
        let decision = buckets.expect("a bucket").peek().await;
        let decision = decision.expect("in memory");
        decision.policies().map(|policy| policy.remaining()).min()
    };
    let respond = Arc::new(Notify::new());
    let responds = Arc::clone(&respond);
    let handler = tower::service_fn(move |request| {
        let responds = Arc::clone(&responds);
        async move {
            responds.notified().await;
            hello(request).await
        }
    });
    let running = tokio::spawn(layer.layer(handler).oneshot(plain()));
    eventually_async("a held unit", async || left().await == Some(1)).await;

    // A response with 200 is free by the former version, and charged by the new one.
    replace(&limits, &settled("fixed window of 3 per day", 200));
    assert_eq!(left().await, Some(2));
    respond.notify_one();
    let answer = running.await.expect("a task").expect("a response");
    assert_eq!(answer.status(), 200);
    eventually_async("the settlement", async || left().await == Some(3)).await;

    assert_eq!(ask_plainly(&layer).status, 200);
    eventually_async("the charge", async || left().await == Some(2)).await;
}
