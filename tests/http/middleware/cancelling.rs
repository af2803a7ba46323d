//! Futures that are dropped before they are done.

use std::future::pending;

use tower::limit::ConcurrencyLimit;

use crate::prelude::*;

/// A layer on a slow store, and handles of what requests hold.
struct Parts {
    slow: Slow<MemoryStore>,
    layer: RateLimitLayer,
    calls: Arc<AtomicUsize>,
    waiting: Arc<()>,
    body: Arc<()>,
}

impl Parts {
    fn new() -> Self {
        let slow = Slow::new(standing_store().0);
        Self {
            layer: RateLimitLayer::new(api()).store(slow.clone()),
            slow,
            calls: Arc::default(),
            waiting: Arc::default(),
            body: Arc::default(),
        }
    }

    /// Begins a request to a service that counts calls, and whose answer never comes. It holds its
    /// request until it is dropped.
    fn begin(&self, layer: &RateLimitLayer) -> Pin<Box<dyn Future<Output = ()>>> {
        let (calls, waiting) = (Arc::clone(&self.calls), Arc::clone(&self.waiting));
        let stuck = service_fn(move |request: Request<Arc<()>>| {
            calls.fetch_add(1, Ordering::SeqCst);
            let held = (request, Arc::clone(&waiting));
            async move {
                let _held = held;
                pending::<Result<Response<Full<Bytes>>, Infallible>>().await
            }
        });
        let response = layer
            .layer(stuck)
            .call(Request::new(Arc::clone(&self.body)));
        Box::pin(async { drop(response.await) })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Asserts that the request, the body, the inner service and its future are dropped.
    #[track_caller]
    fn assert_all_dropped(&self) {
        assert_eq!(Arc::strong_count(&self.body), 1);
        assert_eq!(Arc::strong_count(&self.waiting), 1);
        assert_eq!(Arc::strong_count(&self.calls), 1);
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
        let mut future = parts.begin(&parts.layer);
        for answers in answers {
            parts.slow.gate.add_permits(*answers);
            assert!(poll(&mut future).is_pending(), "{name}");
        }
        assert_eq!(parts.calls(), calls, "{name}");
        if calls == 1 {
            // The ready service is gone after its call.
            assert_eq!(Arc::strong_count(&parts.calls), 1, "{name}");
        }
        drop(future);
        parts.slow.gate.add_permits(10);
        assert_eq!(parts.calls(), calls, "{name}");
        parts.assert_all_dropped();
    }
    // In memory no future of the store is awaited.
    let parts = Parts::new();
    drop(parts.begin(&RateLimitLayer::new(api())));
    assert_eq!(parts.calls(), 1);
    parts.assert_all_dropped();
}

/// It is that of the inner service, which was polled ready.
#[test]
fn a_denied_and_a_dropped_request_return_the_permit_of_their_ready_service() {
    let slow = Slow::new(standing_store().0);
    let layer = RateLimitLayer::new(api()).store(slow.clone());
    let limited = ConcurrencyLimit::new(service_fn(hello::<Full<Bytes>>), 1);
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
    let layer = RateLimitLayer::new(Policy::new("api", FixedWindow::per_day(1)).shared());
    drop(Parts::new().begin(&layer));
    assert_eq!(ask(&layer, plain()).status, 429);
}
