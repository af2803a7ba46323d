//! Waiting on Redis, in real time except where the server is simulated.

use tower_throttle::RedisStore;

use crate::support::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder().timeout(Duration::from_secs(10));
    store.connect(&server.url()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_admitted_at_their_moments_and_never_early() {
    let server = RedisServer::start();
    let policies = [
        Policy::new("bucket", TokenBucket::per_second(1_000).burst(1)),
        Policy::new("queue", LeakyBucket::per_second(1_000).queue(300)),
    ];
    for policy in policies {
        let limiter = limiter_of(connect(&server), [policy]);
        let mut tasks = JoinSet::new();
        for _ in 0..300 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let asked = std::time::Instant::now();
                let permit = acquire(&limiter, "ann", HOUR).await;
                assert!(permit.is_allowed());
                let decision = permit.decision();
                assert!(asked.elapsed() >= decision.delay());
                Duration::from_micros(decided_at_us(decision)) + decision.delay()
            });
        }
        let mut moments = tasks.join_all().await;
        moments.sort_unstable();
        for (earlier, later) in moments.iter().zip(&moments[1..]) {
            // Each is exact to the microsecond in which clocks tick.
            assert!(*later - *earlier >= Duration::from_micros(998));
        }
    }
    server.assert_all_keys_expire();
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

/// For each millisecond of many lifetimes.
#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn a_permit_in_redis_is_renewed_as_long_as_it_is_held() {
    let redis = tower_throttle::testing::SimulatedRedis::new();
    redis.set_delay(ms(3));
    let policy = || Concurrency::new(5).lifetime(ms(300));
    let process = || {
        let store = RedisStore::builder().simulated(&redis.over_another_network());
        Limiter::new(store.unwrap(), policy())
    };
    let (here, there) = (process(), process());
    let ours = here.acquire("ann", HOUR).await.unwrap();
    assert!(ours.is_allowed());
    for _ in 0..3_000 {
        assert_eq!(left(&there, "ann").await, 4);
        tokio::time::sleep(ms(1)).await;
    }
    drop(ours);
    tokio::time::sleep(ms(3)).await;
    assert_eq!(left(&there, "ann").await, 5);
}
