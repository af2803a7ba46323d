//! Requests that wait: each is counted once, when its wait ends.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service};
use tower_throttle::{Concurrency, LeakyBucket, Limiter, Policy, RateLimitLayer, TokenBucket};

use super::{assert_counted, is_pending};
use crate::support::web::{hello, plain, standing_store};

type Answer = Result<Response<Full<Bytes>>, Infallible>;

/// A layer at whose store no time passes, so that all units stay taken.
fn waiting(policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().store(standing_store().0);
    let builder = builder.policy(policy.shared());
    let layer = builder.wait_up_to(Duration::from_millis(250)).build();
    layer.expect("a layer")
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_counted_once_at_its_end() {
    let layer = waiting(Policy::new("slow", TokenBucket::per_second(10).burst(1)));
    let mut service = layer.layer(tower::service_fn(hello::<Full<Bytes>>));
    assert_eq!(
        service.call(plain()).await.expect("an answer").status(),
        200
    );
    // They reserve turns after 100 and 200 ms. The fourth would come too late.
    let mut first = Box::pin(service.call(plain()));
    let mut second = Box::pin(service.call(plain()));
    assert!(is_pending(&mut first) && is_pending(&mut second));
    assert_eq!(
        service.call(plain()).await.expect("an answer").status(),
        429
    );
    let expected = "allowed 1, denied 1, by store 2, slow: near 1, slow: denied 1";
    assert_counted(&layer.metrics(), expected);
    assert_eq!(first.await.expect("an answer").status(), 200);
    drop(second);
    assert_counted(
        &layer.metrics(),
        "allowed 2, denied 1, cancelled 1, by store 3, slow: near 2, slow: denied 1",
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_counts_as_a_wait_does() {
    let queue = Policy::new("queue", LeakyBucket::per_second(10).queue(2)).shared();
    let layer = RateLimitLayer::new(queue).store(standing_store().0);
    let mut service = layer.layer(tower::service_fn(hello::<Full<Bytes>>));
    let mut calls: Vec<_> = (0..4).map(|_| Box::pin(service.call(plain()))).collect();
    assert_counted(&layer.metrics(), "");
    drop(calls.remove(2));
    for (call, status) in calls.into_iter().zip([200, 200, 429]) {
        assert_eq!(call.await.expect("an answer").status(), status);
    }
    let requests = layer.metrics().requests;
    assert_eq!((requests.allowed, requests.denied), (2, 1));
    assert_eq!((requests.cancelled, requests.total()), (1, 4));
}

/// A permit is counted when it is taken, and not when it is released.
#[tokio::test(start_paused = true)]
async fn permits_are_counted_when_they_are_taken() {
    let layer = waiting(Policy::new("at a time", Concurrency::new(1)));
    let stuck = |_: Request<Full<Bytes>>| std::future::pending::<Answer>();
    let mut service = layer.layer(tower::service_fn(stuck));
    let mut holds = Box::pin(service.call(plain()));
    assert!(is_pending(&mut holds));
    let mut waits = Box::pin(service.call(plain()));
    assert!(is_pending(&mut waits));
    let expected = "allowed 1, by store 1, at a time: near 1";
    assert_counted(&layer.metrics(), expected);
    drop(holds);
    while layer.metrics().requests.allowed < 2 {
        assert!(is_pending(&mut waits));
        tokio::task::yield_now().await;
    }
    drop(waits);
    let expected = "allowed 2, by store 2, at a time: near 2";
    assert_counted(&layer.metrics(), expected);
}

/// It asks its store again and again until its time is over.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_is_one_check() {
    let policy = Policy::new("at a time", Concurrency::new(1));
    let limiter = Limiter::new(standing_store().0, policy);
    let held = limiter.acquire("ann", Duration::ZERO).await;
    assert!(held.as_ref().expect("a decision").is_allowed());
    let denied = limiter.acquire("ann", Duration::from_secs(5)).await;
    assert!(!denied.expect("a decision").is_allowed());
    let expected = "allowed 1, denied 1, by store 2, at a time: near 1, at a time: denied 1";
    assert_counted(&limiter.metrics(), expected);
}
