//! Which checks are sent when, to a simulated server: by distance, by load, and beside refunds.

use tokio::time::Instant;
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use super::simulated::uncached;
use crate::support::prelude::*;
use crate::support::rate::at_rate;

const MS: Duration = Duration::from_millis(1);

fn limiter(store: &RedisStore, choice: OnStoreFailure) -> Limiter {
    let policy = Policy::new("api", TokenBucket::per_second(1_000));
    Limiter::new(store.clone(), policy.on_store_failure(choice))
}

/// Makes checks at a steady rate, however long each takes. Returns their outcomes.
async fn steadily(
    limiter: &Limiter,
    per_s: u64,
    lasts: Duration,
) -> Vec<Result<Source, StoreError>> {
    let mut asking = JoinSet::new();
    let call = |number| {
        let limiter = limiter.clone();
        asking.spawn(async move {
            let decision = limiter.check(number % 10_000).await?;
            Ok(decision.source())
        });
    };
    at_rate(per_s, lasts, call).await;
    asking.join_all().await
}

fn failed(answers: &[Result<Source, StoreError>]) -> usize {
    let by_store = |answer: &&_| !matches!(answer, Ok(Source::Store));
    answers.iter().filter(by_store).count()
}

/// Distance is no reason to let checks wait for each other.
#[tokio::test(start_paused = true)]
async fn a_server_far_away_decides_every_check_whose_reply_can_be_in_time() {
    for distance_ms in [5, 20, 30, 45] {
        for per_s in [50, 500, 5_000] {
            let redis = SimulatedRedis::new();
            redis.set_delay(MS * distance_ms / 2);
            redis.set_service_time(MS / 100, MS / 300);
            let limiter = limiter(&uncached(&redis), OnStoreFailure::Deny);
            // Few calls are under way at first, and twice as many after each round trip. At 45 ms
            // and 5,000 a second, the last late check comes after 450 ms.
            steadily(&limiter, per_s, 500 * MS).await;
            let answers = steadily(&limiter, per_s, 1_000 * MS).await;
            assert_eq!(failed(&answers), 0, "{distance_ms} ms, {per_s}/s");
        }
    }
}

/// Each reply takes its own time, and the server has hardly anything to do.
#[tokio::test(start_paused = true)]
async fn jitter_is_no_load() {
    for (shortest_ms, longest_ms, timeout_ms) in [(5, 45, 50), (20, 160, 200), (50, 450, 500)] {
        for per_s in [50, 500] {
            let redis = SimulatedRedis::new();
            redis.set_service_time(MS / 100, MS / 300);
            let builder = hasty().timeout(MS * timeout_ms);
            let store = builder.denial_cache_ttl(Duration::ZERO).simulated(&redis);
            let limiter = limiter(&store.expect("a store"), OnStoreFailure::Deny);
            let jitter = tokio::spawn(async move {
                let mut random = Random::new();
                loop {
                    let both_ways_ms = shortest_ms + random.below(longest_ms - shortest_ms + 1);
                    redis.set_delay(MS * both_ways_ms as u32 / 2);
                    tokio::time::sleep(MS / 2).await;
                }
            });
            let answers = steadily(&limiter, per_s, 20_000 * MS).await;
            jitter.abort();
            let (failed, all) = (failed(&answers), answers.len());
            let is_seldom = failed * 100 < all;
            assert!(
                is_seldom,
                "{shortest_ms} to {longest_ms} ms, {per_s}/s: {failed} of {all}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_becomes_longer_is_known_after_ten_seconds() {
    let redis = SimulatedRedis::new();
    redis.set_service_time(MS / 100, MS / 300);
    let limiter = limiter(&uncached(&redis), OnStoreFailure::Deny);
    for (delay, learns) in [(MS / 2, MS), (MS * 15, 11_000 * MS), (MS / 2, MS)] {
        redis.set_delay(delay);
        steadily(&limiter, 500, learns).await;
        let answers = steadily(&limiter, 500, 2_000 * MS).await;
        assert_eq!(failed(&answers), 0, "{delay:?}");
    }
}

/// Takes permits of as many callers, so that each release is a message of its own.
async fn permits(store: &RedisStore, count: u64) -> Vec<Permit> {
    let limiter = Limiter::new(store.clone(), Concurrency::new(5));
    let mut permits = Vec::new();
    for caller in 0..count {
        permits.push(acquire(&limiter, caller, Duration::ZERO).await);
    }
    assert!(permits.iter().all(Permit::is_allowed));
    permits
}

/// A client that hangs up a thousand streams delays no other check beyond its timeout.
#[tokio::test(start_paused = true)]
async fn no_check_fails_while_a_thousand_permits_come_back() {
    let redis = SimulatedRedis::new();
    let store = uncached(&redis);
    let held = permits(&store, 1_000).await;
    let limiter = limiter(&store, OnStoreFailure::Deny);
    // The thousand releases take a quarter of a second in all.
    redis.set_service_time(MS / 10, MS / 4);
    let answers = tokio::spawn(async move { steadily(&limiter, 500, 500 * MS).await });
    tokio::time::sleep(20 * MS).await;
    let before = redis.served();
    drop(held);
    let answers = answers.await.expect("no panic");
    assert_eq!(failed(&answers), 0, "of {}", answers.len());
    let refunds = redis.served().checks - before.checks;
    assert!(refunds >= 1_000, "{refunds}");
}

/// A client must not be able to switch limits off by causing refunds.
#[tokio::test(start_paused = true)]
async fn a_check_that_is_late_behind_refunds_is_an_overload_and_not_a_failure() {
    let redis = SimulatedRedis::new();
    let store = uncached(&redis);
    let held = permits(&store, 1_000).await;
    let limiter = limiter(&store, OnStoreFailure::Allow);
    // Some refunds together take longer than the timeout of a check.
    redis.set_service_time(MS / 10, MS);
    let answers = tokio::spawn(async move { steadily(&limiter, 50, 1_000 * MS).await });
    tokio::time::sleep(10 * MS).await;
    drop(held);
    let answers = answers.await.expect("no panic");
    assert!(failed(&answers) > 0, "of {}", answers.len());
    for answer in answers {
        match answer {
            Ok(source) => assert_eq!(source, Source::Store),
            Err(error) => assert!(error.is_overloaded(), "{error:?}"),
        }
    }
}

/// Only the server stalls, for a little longer than the timeout.
#[tokio::test(start_paused = true)]
async fn a_stalled_runtime_is_not_an_overload() {
    const TASKS: u64 = 64;
    for stall_ms in [52, 65, 90] {
        let redis = SimulatedRedis::new();
        redis.set_service_time(MS / 100, MS / 300);
        redis.set_delay(MS / 10);
        let limiter = limiter(&uncached(&redis), OnStoreFailure::Deny);
        let began = Instant::now();
        let tasks = (0..TASKS).map(|task| {
            let limiter = limiter.clone();
            async move {
                let mut errors = Vec::new();
                while began.elapsed() < 300 * MS {
                    errors.extend(limiter.check(task).await.err());
                }
                errors
            }
        });
        let tasks: JoinSet<_> = tasks.collect();
        tokio::time::sleep(100 * MS).await;
        // A call of another process delays the server.
        redis.set_service_time(MS * stall_ms, Duration::ZERO);
        let elsewhere = uncached(&redis.over_another_network());
        let elsewhere = self::limiter(&elsewhere, OnStoreFailure::Deny);
        let calls = redis.served().calls;
        let call = tokio::spawn(async move { elsewhere.check(0).await });
        while redis.served().calls == calls {
            tokio::task::yield_now().await;
        }
        redis.set_service_time(MS / 100, MS / 300);
        let _ = call.await;
        let errors: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        assert!(errors.iter().any(StoreError::is_timeout), "{stall_ms}");
        let flood = errors.iter().filter(|error| error.is_overloaded()).count();
        assert_eq!(flood, 0, "{stall_ms}: of {}", errors.len());
    }
}
