//! Calls that are repeated after a refusal.

use std::time::Duration;

use http::Request;
use tokio::time::Instant;
use tower::{
    Layer, ServiceExt,
    retry::{Policy, RetryLayer, budget::TpsBudget},
    service_fn,
};
use tower_throttle_client::RetryRefused;

use crate::{
    calls::{get, layer, refuses},
    partner::{Partner, answer},
};

const SECOND: Duration = Duration::from_secs(1);

/// Sends a request through the retries and the layer. Returns the status and the number of calls.
async fn retried(retries: RetryRefused, partner: &Partner, request: Request<()>) -> (u16, usize) {
    let calls = || {
        [200, 429, 503]
            .map(|status| partner.calls(status).len())
            .iter()
            .sum::<usize>()
    };
    let before = calls();
    let client = partner.clone();
    let client = layer([]).layer(service_fn(move |request| client.clone().call(request)));
    let client = RetryLayer::new(retries).layer(client);
    let status = client.oneshot(request).await.unwrap().status();
    (status.as_u16(), calls() - before)
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_together_are_not_repeated_together() {
    let one = RetryRefused::at_most(1);
    let mut waits = Vec::new();
    let layer = layer([]).default_pause(Duration::from_millis(1));
    for _ in 0..20 {
        let partner = refuses(&[]);
        let client = layer.layer(service_fn(move |request| partner.clone().call(request)));
        let mut refused = client.oneshot(get("/")).await;
        let (mut own, begin) = (one.clone(), Instant::now());
        own.retry(&mut get("/"), &mut refused).unwrap().await;
        waits.push(begin.elapsed());
    }
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 10, "{waits:?}");
    assert!(
        waits
            .iter()
            .all(|wait| (50..101).contains(&wait.as_millis()))
    );
}

#[tokio::test(start_paused = true)]
async fn only_what_is_safe_is_repeated_after_the_pause() {
    let refuses_two = |status| {
        let mut refusals = 2;
        Partner::new(move |_| match refusals {
            0 => answer(200, &[]),
            _ => {
                refusals -= 1;
                answer(status, &[("retry-after", "3")])
            }
        })
    };
    for (method, status, repeats) in [
        ("GET", 429, 3),
        ("HEAD", 429, 3),
        ("PUT", 429, 3),
        ("DELETE", 503, 3),
        ("GET", 500, 3),
        ("POST", 429, 1),
        ("PATCH", 503, 1),
    ] {
        let (partner, begin) = (refuses_two(status), Instant::now());
        let request = Request::builder().method(method).uri("/").body(()).unwrap();
        let (last, calls) = retried(RetryRefused::at_most(3), &partner, request).await;
        let others = partner.calls(500).len();
        assert_eq!(calls + others, repeats, "{method} {status}");
        assert_eq!(
            last,
            if repeats == 3 { 200 } else { status },
            "{method} {status}"
        );
        assert_eq!(
            begin.elapsed() > 6 * SECOND,
            repeats == 3,
            "it waits for both pauses"
        );
    }
    let named = Request::post("/")
        .header("idempotency-key", "\"7\"")
        .body(())
        .unwrap();
    assert_eq!(
        retried(RetryRefused::at_most(3), &refuses_two(429), named).await,
        (200, 3)
    );
    assert_eq!(
        retried(RetryRefused::at_most(1), &refuses_two(429), get("/")).await,
        (429, 2)
    );
    let unavailable = Partner::new(|_| answer(503, &[]));
    assert_eq!(
        retried(RetryRefused::at_most(3), &unavailable, get("/")).await,
        (503, 1)
    );
}

/// What pauses calls as a refusal is repeated as one, and counts in the budget as one.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_wait_may_end_is_repeated_after_it() {
    const USED_UP: &[(&str, &str)] = &[
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1800"),
    ];
    const NEVER: &[(&str, &str)] = &[("x-should-retry", "false"), ("retry-after", "7")];
    for (status, fields, repeats) in [
        (403, USED_UP, true),
        (403, &USED_UP[1..], false),
        (404, USED_UP, false),
        (429, NEVER, false),
        (429, &NEVER[1..], true),
    ] {
        let mut answers = vec![answer(200, &[]), answer(status, fields)];
        let partner = Partner::new(move |_| answers.pop().unwrap());
        let calling = partner.clone();
        let layer = layer([])
            .max_wait(3_600 * SECOND)
            .longest_pause(3_600 * SECOND);
        let client = layer.layer(service_fn(move |request| calling.clone().call(request)));
        let client = RetryLayer::new(RetryRefused::at_most(1)).layer(client);
        let begin = Instant::now();
        let last = client.oneshot(get("/")).await.unwrap().status();
        assert_eq!(last == 200, repeats, "{status} {fields:?}");
        assert_eq!(begin.elapsed() > 6 * SECOND, repeats, "{status} {fields:?}");
    }
    // A refusal for good fills no budget, and takes nothing from it.
    let never = refuses(NEVER);
    let client = layer([]).layer(service_fn(move |request| never.clone().call(request)));
    let mut refused = client.oneshot(get("/")).await;
    let budget = || TpsBudget::new(10 * SECOND, 0, 1.0);
    let mut retries = RetryRefused::at_most(9).budget(budget());
    for _ in 0..3 {
        assert!(retries.clone().retry(&mut get("/"), &mut refused).is_none());
    }
    let sometimes = refuses(&[("retry-after", "7")]);
    let client = layer([]).layer(service_fn(move |request| sometimes.clone().call(request)));
    let mut refused = client.oneshot(get("/")).await;
    assert!(
        retries.retry(&mut get("/"), &mut refused).is_none(),
        "the budget is empty"
    );
}

#[tokio::test(start_paused = true)]
async fn repetitions_are_within_the_budget_of_all_calls() {
    let partner = refuses(&[("retry-after", "1")]);
    let retries = RetryRefused::at_most(1_000).budget(TpsBudget::new(10 * SECOND, 1, 0.0));
    let begin = Instant::now();
    let (status, calls) = retried(retries, &partner, get("/")).await;
    assert_eq!(status, 429);
    assert!(calls <= 12 + begin.elapsed().as_secs() as usize, "{calls}");
}
