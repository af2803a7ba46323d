//! A layer that holds requests before it calls the inner service.

use std::convert::Infallible;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::{sync::mpsc, time::Instant};
use tower_throttle::HeaderFormat;

use super::fixtures::{Request_, hello_at, statuses, whole_ms};
use crate::support::prelude::*;
use crate::support::web::Slow;

fn queue(units: u64) -> Policy {
    Policy::new("queue", LeakyBucket::per_second(10).queue(units)).shared()
}

/// Sends this many requests at once. Returns their statuses, and when the inner service was
/// called.
async fn send(layer: &RateLimitLayer, requests: usize) -> (Vec<StatusCode>, Vec<u64>) {
    let (sender, mut called) = mpsc::unbounded_channel();
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        let sender = sender.clone();
        let inner = tower::service_fn(move |_| hello_at(sender.clone()));
        let service = layer.layer(inner);
        tasks.spawn(async move {
            let response = service.oneshot(plain()).await.unwrap();
            if response.status() == 429 {
                assert_eq!(started.elapsed(), ms(0), "denied late");
                let retry_after = response.headers()["retry-after"].to_str().unwrap();
                assert!(retry_after.parse::<u64>().unwrap() >= 1);
            }
            assert!(response.headers().contains_key("ratelimit"));
            assert!(response.headers().contains_key("ratelimit-policy"));
            response.status()
        });
    }
    drop(sender);
    let mut calls = Vec::new();
    while let Some(at) = called.recv().await {
        calls.push(whole_ms(at - started));
    }
    (tasks.join_all().await, calls)
}

#[tokio::test(start_paused = true)]
async fn a_queue_spaces_inner_calls_evenly_and_denies_when_full() {
    for units in [0, 1, 7, 20] {
        let layer = RateLimitLayer::new(queue(units)).store(paused_store());
        let (answers, calls) = send(&layer, 30).await;
        let turns: Vec<_> = (0..=units).map(|turn| 100 * turn).collect();
        assert_eq!(calls, turns);
        assert_eq!(statuses(&answers, StatusCode::OK) as u64, 1 + units);
        let denied = statuses(&answers, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(denied as u64, 29 - units);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_refunds_its_reservation() {
    let store = paused_store();
    let layer = RateLimitLayer::new(queue(3)).store(store.clone());
    let limiter = Limiter::new(store, queue(3));
    let (sender, mut called) = mpsc::unbounded_channel();
    let request = || {
        let sender = sender.clone();
        let inner = tower::service_fn(move |_| hello_at(sender.clone()));
        Box::pin(layer.layer(inner).oneshot(plain()))
    };
    assert!(poll(&mut request()).is_ready());
    let mut waiting = vec![request(), request(), request()];
    for one in &mut waiting {
        assert!(poll(one).is_pending());
    }
    assert_eq!(left(&limiter, "").await, 0);
    assert_eq!(request().await.unwrap().status(), 429);
    drop(waiting.pop());
    assert_eq!(left(&limiter, "").await, 1);
    let mut another = request();
    assert!(poll(&mut another).is_pending());
    assert_eq!(left(&limiter, "").await, 0);
    drop((waiting, another));
    assert_eq!(left(&limiter, "").await, 3);
    drop(sender);
    assert!(called.recv().await.is_some());
    assert!(
        called.recv().await.is_none(),
        "the inner service was called for a caller that left"
    );
}

/// The turn counts from the call, whenever the future is first polled.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_polled_late_is_ready_at_once() {
    let layer = RateLimitLayer::new(queue(3)).store(paused_store());
    let mut service = layer.layer(tower::service_fn(hello));
    let started = Instant::now();
    drop(service.call(plain()).await);
    let second = service.call(plain());
    tokio::time::sleep(ms(60)).await;
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(whole_ms(started.elapsed()), 100);
}

#[tokio::test(start_paused = true)]
async fn wait_up_to_denies_at_once_a_caller_whose_wait_would_be_too_long() {
    let bucket = Policy::new("bucket", TokenBucket::per_second(10).burst(2)).shared();
    let layer = RateLimitLayer::builder()
        .store(paused_store())
        .policy(bucket)
        .wait_up_to(ms(500))
        .build()
        .unwrap();
    let (answers, calls) = send(&layer, 30).await;
    assert_eq!(calls, [0, 0, 100, 200, 300, 400, 500]);
    assert_eq!(statuses(&answers, StatusCode::TOO_MANY_REQUESTS), 23);
}

#[tokio::test(start_paused = true)]
async fn wait_up_to_waits_for_a_window() {
    let store = paused_store();
    let layer = |wait| {
        RateLimitLayer::builder()
            .store(store.clone())
            .policy(Policy::new("window", FixedWindow::new(1, ms(400))).shared())
            .wait_up_to(wait)
            .build()
            .unwrap()
    };
    let send = |wait| layer(wait).layer(tower::service_fn(hello)).oneshot(plain());
    let started = Instant::now();
    assert_eq!(send(ms(0)).await.unwrap().status(), 200);
    assert_eq!(send(ms(399)).await.unwrap().status(), 429);
    assert_eq!(started.elapsed(), ms(0));
    assert_eq!(send(ms(400)).await.unwrap().status(), 200);
    assert_eq!(started.elapsed(), ms(400));
}

/// The wait in a queue does not count towards the layer's wait.
#[tokio::test(start_paused = true)]
async fn a_queue_has_a_bound_of_its_own() {
    let layer = RateLimitLayer::builder()
        .store(paused_store())
        .policy(queue(10))
        .wait_up_to(ms(0))
        .build()
        .unwrap();
    let (answers, calls) = send(&layer, 11).await;
    assert_eq!(calls.last(), Some(&1_000));
    assert_eq!(statuses(&answers, StatusCode::OK), 11);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waited_gets_the_same_fields() {
    for (headers, name) in [
        (HeaderFormat::Draft10, "ratelimit"),
        (HeaderFormat::XRateLimitDelta, "x-ratelimit-remaining"),
    ] {
        let layer = RateLimitLayer::builder()
            .store(paused_store())
            .policy(queue(10))
            .policy(Policy::new("few", Concurrency::new(50)).shared())
            .policy(Policy::new("window", FixedWindow::per_hour(7)).shared())
            .headers(headers)
            .decision_in_extensions()
            .build()
            .unwrap();
        for (asked, delay) in [(1, 0), (2, 0), (3, 50)] {
            let inner = |request: Request_| async move {
                let decision: &Decision = request.extensions().get().unwrap();
                let delay = format!("{:?}", decision.delay());
                Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(delay)))
            };
            let service = layer.layer(tower::service_fn(inner));
            let response = service.oneshot(plain()).await.unwrap();
            assert!(response.headers().contains_key(name), "{headers:?}");
            let decision: Decision = response.extensions().get().cloned().unwrap();
            let all: Vec<_> = decision
                .policies()
                .map(|policy| (policy.name(), policy.remaining(), policy.delay()))
                .collect();
            let expected = [
                ("queue", if asked == 3 { 9 } else { 10 }, ms(delay)),
                ("few", 49, ms(0)),
                ("window", 7 - asked, ms(0)),
            ];
            assert_eq!(all, expected);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("{:?}", decision.delay()));
            tokio::time::sleep(ms(if asked == 2 { 50 } else { 100 })).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permits_decision_reports_each_policy() {
    let limiter = Limiter::builder()
        .store(paused_store())
        .policy(Policy::new("bucket", TokenBucket::per_second(10).burst(1)))
        .policy(Policy::new("queue", LeakyBucket::per_second(5).queue(9)))
        .policy(Policy::new("few", Concurrency::new(3)))
        .build()
        .unwrap();
    let permit = limiter.acquire("ann", ms(0)).await.unwrap();
    assert_eq!(permit.decision().delay(), ms(0));
    let second = limiter.acquire("ann", ms(1_000)).await.unwrap();
    let decision = second.decision();
    assert_eq!(decision.delay(), ms(200));
    let delays: Vec<_> = decision.policies().map(|policy| policy.delay()).collect();
    assert_eq!(delays, [ms(100), ms(200), Duration::ZERO]);
    assert_eq!(decision.charged(), 1);
    assert_eq!(decision.denied_by().count(), 0);
    assert_eq!(decision.policies().nth(2).unwrap().remaining(), 1);
}

/// The store answers late. The request is still held for the whole delay.
#[tokio::test(start_paused = true)]
async fn a_slow_store_admits_no_caller_early() {
    let slow = Slow::new(paused_store());
    let layer = RateLimitLayer::new(queue(3)).store(slow.clone());
    let mut service = layer.layer(tower::service_fn(hello));
    let started = Instant::now();
    slow.gate.add_permits(1);
    drop(service.call(plain()).await.unwrap());
    let gate = slow.gate.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ms(30)).await;
        gate.add_permits(1);
    });
    assert_eq!(service.call(plain()).await.unwrap().status(), 200);
    assert!(started.elapsed() >= ms(100));
}
