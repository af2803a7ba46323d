//! A layer that holds requests before it calls the inner service.

use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::{sync::mpsc, time::Instant};

use super::fixtures::whole_ms;
use crate::support::prelude::*;

fn queue(units: u64) -> Policy {
    Policy::new("queue", LeakyBucket::per_second(10).queue(units)).shared()
}

fn layer(policy: Policy, wait: Duration) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().store(paused_store());
    builder.policy(policy).wait_up_to(wait).build().unwrap()
}

/// Answers hello, and records when it was called.
async fn hello_at(
    calls: mpsc::UnboundedSender<Instant>,
) -> Result<Response<Full<bytes::Bytes>>, std::convert::Infallible> {
    calls.send(Instant::now()).unwrap();
    hello(plain()).await
}

/// Sends this many requests at once. Returns how many were forwarded, and when the inner service
/// was called. The others are denied at once.
async fn send(layer: &RateLimitLayer, requests: usize) -> (usize, Vec<u64>) {
    let (sender, mut called) = mpsc::unbounded_channel();
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        let sender = sender.clone();
        let service = layer.layer(tower::service_fn(move |_| hello_at(sender.clone())));
        tasks.spawn(async move {
            let response = service.oneshot(plain()).await.unwrap();
            let is_forwarded = response.status() == StatusCode::OK;
            if !is_forwarded {
                assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
                assert_eq!(started.elapsed(), ms(0), "denied late");
                let retry_after = response.headers()["retry-after"].to_str().unwrap();
                assert!(retry_after.parse::<u64>().unwrap() >= 1);
            }
            assert!(response.headers().contains_key("ratelimit"));
            is_forwarded
        });
    }
    drop(sender);
    let mut calls = Vec::new();
    while let Some(at) = called.recv().await {
        calls.push(whole_ms(at - started));
    }
    let forwarded = tasks.join_all().await.into_iter().filter(|yes| *yes);
    (forwarded.count(), calls)
}

/// The wait in a queue does not count towards the layer's wait.
#[tokio::test(start_paused = true)]
async fn inner_calls_are_spaced_and_requests_beyond_the_bound_are_denied_at_once() {
    let turns = |count| (0..count).map(|turn| 100 * turn).collect::<Vec<_>>();
    for units in [0, 1, 7, 20] {
        let layer = layer(queue(units), ms(0));
        let forwarded = 1 + units;
        let sent = send(&layer, 30).await;
        assert_eq!(sent, (forwarded as usize, turns(forwarded)));
    }
    let bucket = Policy::new("bucket", TokenBucket::per_second(10).burst(2)).shared();
    let (forwarded, calls) = send(&layer(bucket, ms(500)), 30).await;
    assert_eq!((forwarded, calls), (7, [vec![0], turns(6)].concat()));
    let window = Policy::new("window", FixedWindow::new(2, ms(400))).shared();
    let (forwarded, calls) = send(&layer(window.clone(), ms(400)), 5).await;
    assert_eq!((forwarded, calls), (4, vec![0, 0, 400, 400]));
    assert_eq!(send(&layer(window, ms(399)), 5).await, (2, vec![0, 0]));
}

/// The turn counts from the call, whenever the future is first polled.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_polled_late_is_ready_at_once() {
    let layer = layer(queue(3), ms(0));
    let mut service = layer.layer(tower::service_fn(hello));
    let started = Instant::now();
    drop(service.call(plain()).await);
    let second = service.call(plain());
    tokio::time::sleep(ms(60)).await;
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(whole_ms(started.elapsed()), 100);
}
