//! Waiting on Redis, in real time except where the server is simulated.

use std::{pin::Pin, task::Poll, time::Duration};

use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Limiter, Policy, RateLimitLayer, RedisStore, SlidingLog,
    TokenBucket,
};

use super::fixtures::{answering, channel, left, limiter, ms, poll};
use crate::support::random::Random;
use crate::support::{
    RedisServer, decided_at_us, eventually_async,
    web::{hello, plain},
};

const HOUR: Duration = Duration::from_secs(3_600);

fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder().timeout(Duration::from_secs(10));
    store.connect(&server.url()).unwrap()
}

/// Polls once, in this task.
async fn look<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Returns the remaining units of each policy; none if a busy machine made the store time out.
async fn remaining(limiter: &Limiter) -> Vec<u64> {
    match limiter.peek("ann").await {
        Ok(decision) => decision
            .policies()
            .map(|policy| policy.remaining())
            .collect(),
        Err(_) => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_admitted_at_their_moments_and_never_early() {
    let server = RedisServer::start();
    let policies = [
        Policy::new("bucket", TokenBucket::per_second(1_000).burst(1)),
        Policy::new("queue", LeakyBucket::per_second(1_000).queue(300)),
    ];
    for policy in policies {
        let limiter = limiter(&connect(&server), [policy]);
        let mut tasks = JoinSet::new();
        for _ in 0..300 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let asked = std::time::Instant::now();
                let permit = limiter.acquire("ann", HOUR).await.unwrap();
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
    let limiter = limiter(
        &connect(&server),
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
        } else if let Poll::Ready(permit) = look(&mut waiting[place]).await {
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
        let left = remaining(&limiter).await;
        matches!(left[..], [bucket, window, log, few]
            if bucket <= 50 - taken
                && [window, log, few] == [1_000 - taken, 1_000 - taken, 900 - held])
    };
    eventually_async("the units of callers that left", || stands(taken)).await;
    drop(permits);
    eventually_async("the permits", || stands(0)).await;
    server.assert_all_keys_expire();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_layers_on_two_stores_share_the_limit() {
    let server = RedisServer::start();
    let few = || Policy::new("few", Concurrency::new(3)).shared();
    let stores = [connect(&server), connect(&server)];
    let limiter = Limiter::new(stores[0].clone(), few());
    let layers = stores.map(|store| RateLimitLayer::new(few()).store(store));
    let (mut held, mut frames) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let (sender, body) = channel();
        frames.push(sender);
        let inner = answering(body);
        let response = layers[number % 2]
            .layer(inner)
            .oneshot(plain())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        held.push(response);
    }
    for layer in &layers {
        let denied = layer
            .layer(tower::service_fn(hello))
            .oneshot(plain())
            .await
            .unwrap();
        assert_eq!(denied.status(), 429);
    }
    drop(held.pop());
    eventually_async("a permit", || async { left(&limiter, "").await == 1 }).await;
    for layer in &layers {
        let response = layer
            .layer(tower::service_fn(hello))
            .oneshot(plain())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        drop(response);
        eventually_async("a permit", || async { left(&limiter, "").await == 1 }).await;
    }
    drop(held);
    eventually_async("all permits", || async { left(&limiter, "").await == 3 }).await;
}

/// A process ends: its runtime ends, and its permits are not dropped. Those of this process live
/// for longer than a busy machine needs to renew them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_crashed_process_return_and_held_ones_do_not() {
    let server = RedisServer::start();
    let policy = |lifetime| Policy::new("few", Concurrency::new(5).lifetime(lifetime));
    let (url, short) = (server.url(), ms(300));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = RedisStore::builder().timeout(Duration::from_secs(10));
            let limiter = Limiter::new(store.connect(&url).unwrap(), policy(short));
            for _ in 0..3 {
                let permit = limiter.acquire("ann", ms(0)).await.unwrap();
                assert!(permit.is_allowed());
                std::mem::forget(permit);
            }
        });
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    let limiter = limiter(&connect(&server), [policy(HOUR)]);
    let ours = limiter.acquire("ann", HOUR).await.unwrap();
    assert!(ours.is_allowed());
    eventually_async("the permits of the dead process", || async {
        remaining(&limiter).await == [4]
    })
    .await;
    drop(ours);
    eventually_async("the permits of this process", || async {
        remaining(&limiter).await == [5]
    })
    .await;
    server.assert_all_keys_expire();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_bounds_concurrent_work_on_redis() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server), [Policy::new("few", Concurrency::new(4))]);
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let permit = limiter.acquire("ann", HOUR).await.unwrap();
            assert!(permit.is_allowed());
            MOST.fetch_max(1 + RUNNING.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            tokio::task::yield_now().await;
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        });
    }
    tasks.join_all().await;
    assert!(MOST.load(Ordering::SeqCst) <= 4);
    eventually_async("all permits", || async { remaining(&limiter).await == [4] }).await;
}

/// A layer's request that is dropped before it was ever polled takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_never_polled_leave_nothing() {
    use tower::Service;
    let server = RedisServer::start();
    let store = connect(&server);
    let few = || Policy::new("few", Concurrency::new(50)).shared();
    let layer = RateLimitLayer::new(few()).store(store.clone());
    let limiter = Limiter::new(store, few());
    assert_eq!(left(&limiter, "").await, 50);
    let mut service = layer.layer(tower::service_fn(hello));
    for polls in 0..100 {
        let mut future = Box::pin(service.call(plain()));
        if polls % 2 == 1 {
            let _ = poll(&mut future);
        }
        drop(future);
    }
    eventually_async("all permits", || async { left(&limiter, "").await == 50 }).await;
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
