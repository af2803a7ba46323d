//! What limiters report of a real server, and of servers that misbehave.

use std::time::Duration;

use tower_throttle::{
    Limiter, OnStoreFailure, Policy, RedisStore, TokenBucket,
    metrics::{StoreFailures, StoreMetrics},
};

use crate::support::{RedisServer, eventually_async, fake};

/// Returns a limiter that returns the store's errors.
fn denying(url: &str, timeout: Duration) -> Limiter {
    let builder = RedisStore::builder().timeout(timeout);
    let store = builder.denial_cache_ttl(Duration::ZERO).connect(url);
    let policy = Policy::new("api", TokenBucket::per_day(1_000_000));
    Limiter::new(
        store.expect("a store"),
        policy.on_store_failure(OnStoreFailure::Deny),
    )
}

fn of(limiter: &Limiter) -> StoreMetrics {
    limiter.metrics().store
}

#[tokio::test]
async fn each_call_and_each_failure_of_a_real_server_is_counted() {
    let mut server = RedisServer::start();
    let limiter = denying(&server.url(), crate::support::DEADLINE);
    for _ in 0..50 {
        assert!(limiter.check("ann").await.expect("a decision").is_allowed());
    }
    let found = of(&limiter);
    let calls = found.call_seconds.expect("a histogram");
    assert_eq!(calls.count(), 50);
    assert!(calls.sum > 0.0, "{calls:?}");
    let checks = found.checks_per_call.expect("a histogram");
    assert_eq!((checks.count(), checks.sum), (50, 50.0));
    assert_eq!(found.failures, StoreFailures::default());
    assert!(found.is_up);

    // Unexpected data is of one caller, and the store is well.
    let keys = limiter.storage_keys("bob");
    server.command(&["SET", &keys[0], "junk"]);
    limiter.check("bob").await.expect_err("unexpected data");
    let found = of(&limiter);
    assert_eq!((found.failures.corrupt_state, found.is_up), (1, true));
    assert_eq!(found.failures.total(), 1);

    server.kill();
    eventually_async("a check without a connection", || async {
        limiter.check("ann").await.expect_err("no server");
        of(&limiter).failures.not_connected > 0
    })
    .await;
    let found = of(&limiter);
    assert!(!found.is_up);
    let known = found.failures;
    assert_eq!(
        known.total(),
        known.corrupt_state + known.not_connected + known.unavailable,
        "{known:?}"
    );
    // What was not sent took no time.
    let calls = found.call_seconds.expect("a histogram");
    assert_eq!(calls.count(), 51 + known.unavailable);

    server.run();
    eventually_async("a store that is up", || async {
        let _ = limiter.check("ann").await;
        of(&limiter).is_up
    })
    .await;
}

#[tokio::test]
async fn a_server_that_refuses_opens_the_breaker() {
    let port = fake::answer(|_, words| match fake::is_script(words) {
        true => "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        false => "+OK\r\n",
    });
    let limiter = denying(
        &format!("redis://127.0.0.1:{port}/"),
        crate::support::DEADLINE,
    );
    let mut kinds = StoreFailures::default();
    for _ in 0..7 {
        let error = limiter.check("ann").await.expect_err("it refuses");
        match error.is_refused() {
            true => kinds.refused += 1,
            false => kinds.not_sent += 1,
        }
    }
    let found = of(&limiter);
    assert_eq!(found.failures, kinds);
    assert_eq!(found.breakers_open, Some(1));
    // A check after the pause is a probe, which may be refused, too.
    assert!(kinds.refused >= 5, "{kinds:?}");
    let calls = found.call_seconds.expect("a histogram");
    assert_eq!(calls.count(), kinds.refused);
}
