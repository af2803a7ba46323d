//! Callers that leave outside a runtime, or at any moment of a check of Redis.

use tokio::runtime::Runtime;

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
        store_at(&server.url())
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

/// Callers leave at any moment: before the check is sent, while it or its answer is in flight,
/// and while they wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_at_random_moments_refunds_everything() {
    let mut random = Random::new();
    let server = RedisServer::start();
    let limiter = limiter_of(
        store_at(&server.url()),
        [
            Policy::new("bucket", TokenBucket::per_hour(100).burst(50)),
            Policy::new("window", FixedWindow::per_hour(1_000)),
            Policy::new("log", SlidingLog::per_hour(1_000)),
            Policy::new("few", Concurrency::new(900)),
        ],
    );
    let mut waiting = Vec::new();
    for _ in 0..300 {
        waiting.push(Box::pin(
            limiter.acquire("ann", Duration::from_secs(360_000)),
        ));
    }
    let mut permits = Vec::new();
    while !waiting.is_empty() {
        let place = random.below(waiting.len() as u64) as usize;
        if random.below(8) == 0 {
            drop(waiting.swap_remove(place));
        } else if let Poll::Ready(permit) = poll(&mut waiting[place]) {
            drop(waiting.swap_remove(place));
            let permit = permit.unwrap();
            assert!(permit.is_allowed());
            permits.push(permit);
        }
        if random.below(4) == 0 {
            tokio::task::yield_now().await;
        }
    }
    let taken = permits.len() as u64;
    // A caller that left before its answer may have used a token that was there at once. If
    // others wait behind it, the token is not refunded.
    let stands = async |held: u64| {
        // None if a busy machine made the store time out.
        let left = limiter.peek("ann").await.map(|decision| left_of(&decision));
        let left = left.unwrap_or_default();
        matches!(left[..], [bucket, window, log, few]
            if bucket <= 50 - taken
                && [window, log, few] == [1_000 - taken, 1_000 - taken, 900 - held])
    };
    eventually_async("the units of callers that left", || stands(taken)).await;
    drop(permits);
    eventually_async("the permits", || stands(0)).await;
    server.assert_all_keys_expire();
}
