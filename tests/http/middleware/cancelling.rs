//! Futures that are dropped before they are done.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, limit::ConcurrencyLimit};
use tower_throttle::{MemoryStore, RateLimitLayer};

use crate::support::web::{Slow, api, ask, get, hello, standing_store};

/// A service whose answer never comes. It counts calls, and answers that are not dropped yet.
#[derive(Clone, Default)]
struct Stuck {
    calls: Arc<AtomicUsize>,
    waiting: Arc<()>,
}

/// Holds the request, and is counted, until it is dropped.
struct Waiting {
    _request: Request<Arc<()>>,
    _counted: Arc<()>,
}

impl Future for Waiting {
    type Output = Result<Response<Full<Bytes>>, std::convert::Infallible>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

impl Service<Request<Arc<()>>> for Stuck {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = Waiting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Arc<()>>) -> Waiting {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Waiting {
            _request: request,
            _counted: Arc::clone(&self.waiting),
        }
    }
}

fn poll<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

struct Parts {
    slow: Slow<MemoryStore>,
    layer: RateLimitLayer,
    stuck: Stuck,
    body: Arc<()>,
}

impl Parts {
    fn new() -> Self {
        let slow = Slow::new(standing_store().0);
        Self {
            layer: RateLimitLayer::new(api()).store(slow.clone()),
            slow,
            stuck: Stuck::default(),
            body: Arc::default(),
        }
    }

    fn calls(&self) -> usize {
        self.stuck.calls.load(Ordering::SeqCst)
    }

    /// Asserts that the request, the body and the inner future are dropped.
    #[track_caller]
    fn assert_all_dropped(&self) {
        assert_eq!(Arc::strong_count(&self.body), 1);
        assert_eq!(Arc::strong_count(&self.stuck.waiting), 1);
        assert_eq!(Arc::strong_count(&self.stuck.calls), 1);
        assert_eq!(Arc::strong_count(&self.slow.gate), 2);
    }
}

#[test]
fn dropping_before_the_first_poll_calls_nothing_and_keeps_nothing() {
    let parts = Parts::new();
    let mut service = parts.layer.layer(parts.stuck.clone());
    drop(service.call(Request::new(Arc::clone(&parts.body))));
    drop(service);
    assert_eq!(parts.calls(), 0);
    parts.assert_all_dropped();
}

#[test]
fn dropping_while_the_store_decides_calls_nothing_and_keeps_nothing() {
    let parts = Parts::new();
    let mut service = parts.layer.layer(parts.stuck.clone());
    let mut future = Box::pin(service.call(Request::new(Arc::clone(&parts.body))));
    assert!(poll(&mut future).is_pending());
    drop((future, service));
    parts.slow.gate.add_permits(10);
    assert_eq!(parts.calls(), 0);
    parts.assert_all_dropped();
}

#[test]
fn dropping_while_the_inner_service_works_drops_its_future() {
    let parts = Parts::new();
    let mut service = parts.layer.layer(parts.stuck.clone());
    let mut future = Box::pin(service.call(Request::new(Arc::clone(&parts.body))));
    assert!(poll(&mut future).is_pending());
    parts.slow.gate.add_permits(1);
    assert!(poll(&mut future).is_pending());
    assert_eq!(parts.calls(), 1);
    assert_eq!(Arc::strong_count(&parts.stuck.waiting), 2 + 1);
    drop((future, service));
    parts.assert_all_dropped();
    assert_eq!(parts.calls(), 1);
}

#[test]
fn a_store_that_answers_at_once_is_the_same() {
    let parts = Parts::new();
    let (store, _) = standing_store();
    let layer = RateLimitLayer::new(api()).store(store);
    let mut service = layer.layer(parts.stuck.clone());
    let mut future = Box::pin(service.call(Request::new(Arc::clone(&parts.body))));
    assert!(poll(&mut future).is_pending());
    drop((future, service));
    assert_eq!(parts.calls(), 1);
    parts.assert_all_dropped();
}

#[test]
fn while_the_inner_service_works_the_service_made_ready_is_gone() {
    // The ready service is needed for one call only, and is dropped afterwards.
    let parts = Parts::new();
    parts.slow.gate.add_permits(1);
    let mut service = parts.layer.layer(parts.stuck.clone());
    let mut future = Box::pin(service.call(Request::new(Arc::clone(&parts.body))));
    assert!(poll(&mut future).is_pending());
    // The handle of this test, and the one inside `service`.
    assert_eq!(Arc::strong_count(&parts.stuck.calls), 2);
}

#[test]
fn a_denied_request_returns_the_permit_of_its_ready_service() {
    let slow = Slow::new(standing_store().0);
    slow.gate.add_permits(10);
    let layer = RateLimitLayer::new(api()).store(slow);
    let limited = ConcurrencyLimit::new(tower::service_fn(hello::<Full<Bytes>>), 1);
    let mut service = layer.layer(limited);
    for _ in 0..3 {
        let mut ready = Box::pin(std::future::poll_fn(|cx| service.poll_ready(cx)));
        assert!(poll(&mut ready).is_ready());
        drop(ready);
        let mut future = Box::pin(service.call(get([("api", 250)])));
        let Poll::Ready(Ok(response)) = poll(&mut future) else {
            panic!("pending");
        };
        assert_eq!(response.status(), 403);
    }
}

#[test]
fn dropping_while_the_store_decides_returns_the_permit() {
    let slow = Slow::new(standing_store().0);
    let gate = Arc::clone(&slow.gate);
    let layer = RateLimitLayer::new(api()).store(slow);
    let limited = ConcurrencyLimit::new(tower::service_fn(hello::<Full<Bytes>>), 1);
    let mut service = layer.layer(limited);
    for _ in 0..3 {
        let mut ready = Box::pin(std::future::poll_fn(|cx| service.poll_ready(cx)));
        assert!(poll(&mut ready).is_ready());
        drop(ready);
        let mut future = Box::pin(service.call(get([("api", 1)])));
        assert!(poll(&mut future).is_pending());
    }
    gate.add_permits(1);
    drop(service);
    assert_eq!(gate.available_permits(), 1);
}

#[test]
fn a_check_dropped_after_the_decision_stays_charged() {
    let (store, _) = standing_store();
    let layer = RateLimitLayer::new(api()).store(store.clone());
    let mut service = layer.layer(Stuck::default());
    let mut request = Request::new(Arc::default());
    let cost = http::HeaderValue::from_static("100");
    request.headers_mut().insert("api", cost);
    drop(service.call(request));
    assert_eq!(ask(&layer, get([("api", 1)])).status, 429);
}
