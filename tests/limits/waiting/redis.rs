//! Waiting on Redis, in real time except where the server is simulated.

use tower_throttle::RedisStore;

use crate::support::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder().timeout(Duration::from_secs(10));
    store.connect(&server.url()).unwrap()
}

/// Callers leave at any moment: before the check is sent, while it or its answer is in flight,
/// and while they wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_at_random_moments_refunds_everything() {
    let mut random = Random::new();
    let server = RedisServer::start();
    let limiter = limiter_of(
        connect(&server),
        [
            Policy::new("bucket", TokenBucket::per_hour(100).burst(50)),
            Policy::new("window", FixedWindow::per_hour(1_000)),
            Policy::new("log", SlidingLog::per_hour(1_000)),
            Policy::new("few", Concurrency::new(900)),
        ],
    );
    let mut waiting = Vec::new();
    for _ in 0..300 {
        waiting.push(Box::pin(limiter.acquire("ann", 100 * HOUR)));
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
