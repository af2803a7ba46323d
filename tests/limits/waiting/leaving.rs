//! Callers that leave outside a runtime, or many at a time.

use tokio::runtime::Runtime;
use tower_throttle::RedisStore;

use crate::support::prelude::*;
use crate::support::web::Slow;

fn few() -> Policy {
    Policy::new("few", Concurrency::new(1)).shared()
}

/// A future that was polled in a runtime is dropped on a thread outside it.
#[test]
fn leaving_on_a_thread_outside_the_runtime_refunds() {
    let runtime = Runtime::new().unwrap();
    let store = MemoryStore::new();
    let slow = Slow::new(store.clone());
    let asking = Limiter::new(slow.clone(), few());
    let looking = Limiter::new(store, few());
    let leaves = {
        let _inside = runtime.enter();
        come(&asking, ms(0))
    };
    drop(leaves);
    slow.gate.add_permits(100);
    let is_back = || async { left(&looking, "ann").await == 1 };
    runtime.block_on(eventually_async("the permit", is_back));
}

/// A request to Redis that was never polled is dropped: that must not panic.
#[test]
fn dropping_a_request_to_redis_outside_the_runtime_does_not_panic() {
    let server = RedisServer::start();
    let runtime = Runtime::new().unwrap();
    let store = {
        let _inside = runtime.enter();
        RedisStore::connect(&server.url()).unwrap()
    };
    let limiter = Limiter::new(store.clone(), few());
    let is_connected = || async { limiter.peek("").await.is_ok() };
    runtime.block_on(eventually_async("a connection", is_connected));
    let layer = RateLimitLayer::new(few()).store(store);
    let mut service = layer.layer(tower::service_fn(hello));
    let never_polled = service.call(plain());
    drop(never_polled);
    let is_back = || async { left(&limiter, "").await == 1 };
    runtime.block_on(eventually_async("the permit", is_back));
}

/// A whole crowd leaves at once: more than may wait for Redis at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_leaves_redis_at_once() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(Duration::from_secs(10))
        .max_in_flight(100)
        .connect(&server.url())
        .unwrap();
    let limiter = Limiter::new(store, TokenBucket::per_day(24).burst(10));
    let hours = || async {
        // Other checks may delay this one, too.
        let decision = limiter.peek("ann").await.ok()?;
        let taken = decision.policies().next()?.reset_after();
        Some(taken.as_secs().div_ceil(3_600))
    };
    let mut crowd = JoinSet::new();
    for place in 1..=500 {
        let limiter = limiter.clone();
        crowd.spawn(async move { limiter.acquire("ann", Duration::from_secs(9_000_000)).await });
        // Some of the callers before may not have polled for their answers yet.
        if place % 25 == 0 {
            let is_reserved = || async { hours().await == Some(place) };
            eventually_async("their reservations", is_reserved).await;
        }
    }
    crowd.shutdown().await;
    // Ten were admitted at once, and no waiter was.
    eventually_async("all reservations", || async { hours().await == Some(10) }).await;
}
