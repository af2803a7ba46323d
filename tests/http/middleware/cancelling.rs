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

/// The request, the body, the inner service and its future are gone, wherever the request waited.
#[test]
fn a_request_that_is_dropped_keeps_nothing() {
    // How often it is polled, what the store answers before each poll, and calls of the handler.
    for (name, answers, calls) in [
        ("before the first poll", &[][..], 0),
        ("while the store decides", &[0], 0),
        ("while the handler works", &[0, 1], 1),
        ("a store that answers at once", &[1], 1),
    ] {
        let parts = Parts::new();
        let mut service = parts.layer.layer(parts.stuck.clone());
        let mut future = Box::pin(service.call(Request::new(Arc::clone(&parts.body))));
        for answers in answers {
            parts.slow.gate.add_permits(*answers);
            assert!(poll(&mut future).is_pending(), "{name}");
        }
        assert_eq!(parts.calls(), calls, "{name}");
        if calls == 1 {
            // The ready service is gone after its call. These are of the test and of `service`.
            assert_eq!(Arc::strong_count(&parts.stuck.calls), 2, "{name}");
        }
        drop((future, service));
        parts.slow.gate.add_permits(10);
        assert_eq!(parts.calls(), calls, "{name}");
        parts.assert_all_dropped();
    }
    // In memory no future of the store is awaited.
    let parts = Parts::new();
    let mut service = RateLimitLayer::new(api()).layer(parts.stuck.clone());
    drop(service.call(Request::new(Arc::clone(&parts.body))));
    drop(service);
    assert_eq!(parts.calls(), 1);
    parts.assert_all_dropped();
}

/// It is that of the inner service, which was polled ready.
#[test]
fn a_denied_and_a_dropped_request_return_the_permit_of_their_ready_service() {
    let slow = Slow::new(standing_store().0);
    let layer = RateLimitLayer::new(api()).store(slow.clone());
    let limited = ConcurrencyLimit::new(tower::service_fn(hello::<Full<Bytes>>), 1);
    let mut service = layer.layer(limited);
    for answers in [1, 0, 1, 0, 0] {
        let mut ready = Box::pin(std::future::poll_fn(|cx| service.poll_ready(cx)));
        assert!(poll(&mut ready).is_ready());
        drop(ready);
        slow.gate.add_permits(answers);
        let mut future = Box::pin(service.call(get([("api", 250)])));
        match poll(&mut future) {
            Poll::Ready(response) => assert_eq!(response.expect("infallible").status(), 403),
            Poll::Pending => assert_eq!(answers, 0),
        }
    }
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
