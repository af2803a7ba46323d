//! The same exact counts as on one node.

use std::time::Instant;

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_lie_on_all_nodes_and_each_is_counted_exactly() {
    let cluster = RedisCluster::start(3, 0);
    let bucket = Policy::new("bucket", TokenBucket::per_day(3));
    let log = Policy::new("log", SlidingLog::per_day(5));
    let limiter = denying_limiter(store_at(&cluster.url()), [bucket, log]);
    let tasks = (0..300).map(|number| {
        let limiter = limiter.clone();
        tokio::spawn(async move { count_admitted(&limiter, &format!("caller-{number}"), 5).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.expect("no panic"), 3);
    }
    for node in &cluster.nodes {
        let keys = node.keys().len();
        assert!((100..300).contains(&keys), "{keys} of 600 keys on a node");
        node.assert_all_keys_expire();
    }
    // Both keys of a caller share a slot, which the store takes for the same as Redis does.
    for number in 0..300 {
        let keys = limiter.storage_keys(format!("caller-{number}"));
        assert_eq!(cluster.slot(&keys[0]), cluster.slot(&keys[1]));
    }

    let caller = "caller-7";
    let refund = limiter.credit(caller, 2).await.expect("given");
    assert_eq!(refund.refunded(), 2);
    assert_eq!(taken(&limiter, caller).await, [1, 1]);
    limiter.reset(caller).await.expect("forgotten");
    assert_eq!(taken(&limiter, caller).await, [0, 0]);
    assert_eq!(count_admitted(&limiter, caller, 5).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_as_many_racing_checks_pass_as_the_quota_allows() {
    let cluster = RedisCluster::start(3, 0);
    let stores = [store_at(&cluster.url()), store_at(&cluster.url())];
    for round in 0..4 {
        let tasks = (0..64).map(|task| {
            let limiter = per_day(&stores[task % 2], 100);
            tokio::spawn(async move { count_admitted(&limiter, &format!("hot-{round}"), 10).await })
        });
        let mut passed = 0;
        for task in tasks.collect::<Vec<_>>() {
            passed += task.await.expect("no panic");
        }
        assert_eq!(passed, 100);
    }
}

#[tokio::test]
async fn an_absent_cluster_fails_at_once_and_is_found_when_it_comes() {
    let mut cluster = RedisCluster::stopped(3);
    let limiter = per_day(&store_at(&cluster.url()), 3);
    let asked = Instant::now();
    let error = limiter.check("ann").await.expect_err("no server listens");
    assert!(error.is_unavailable(), "{error:?}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.unwrap_or_default().contains("refused"), "{error:?}");
    assert!(asked.elapsed() < DEADLINE / 2, "it did not wait");

    cluster.run(3);
    eventually_async("a decision", || async { limiter.peek("ann").await.is_ok() }).await;
    assert_eq!(count_admitted(&limiter, "ann", 10).await, 3);
}

#[tokio::test]
async fn one_reachable_seed_is_enough() {
    let cluster = RedisCluster::start(3, 0);
    let unused = crate::support::port::Port::claim();
    let port = cluster.nodes[2].port();
    for url in [
        format!("redis-cluster://127.0.0.1:{unused},localhost:{port}/"),
        format!("valkey-cluster://127.0.0.1:{unused}/?node=127.0.0.1:{port}"),
    ] {
        let limiter = per_day(&store_at(&url), 1_000);
        for caller in 0..20 {
            let caller = format!("caller-{caller}");
            eventually_async("a decision", || async {
                limiter.check(&*caller).await.is_ok()
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_to_all_nodes_are_added_up() {
    let cluster = RedisCluster::start(3, 0);
    let limiter = per_day(&store_at(&cluster.url()), 3);
    for number in 0..60 {
        let count = count_admitted(&limiter, &format!("caller-{number}"), 1).await;
        assert_eq!(count, 1);
    }
    let found = limiter.metrics().store;
    let calls = found.call_seconds.expect("a histogram").count();
    let checks = found.checks_per_call.expect("a histogram");
    assert_eq!((calls, checks.count(), checks.sum), (60, 60, 60.0));
    assert_eq!((found.in_flight, found.breakers_open), (Some(0), Some(0)));
    assert_eq!((found.failures.total(), found.is_up), (0, true));
}

/// Only the breaker of the node that hangs opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_breakers_are_counted_by_node() {
    let cluster = RedisCluster::start(3, 0);
    let builder = hasty().timeout(Duration::from_millis(100));
    let store = builder.connect(&cluster.url()).expect("a store");
    let limiter = per_day(&store, 1_000_000);
    let caller = cluster.callers_on(0, &limiter).next().expect("a caller");
    eventually_async("a decision", || async {
        limiter.check(&*caller).await.is_ok()
    })
    .await;
    let _frozen = Frozen::new(&cluster.nodes[0]);
    eventually_async("an open breaker", || async {
        let _ = limiter.check(&*caller).await;
        limiter.metrics().store.breakers_open == Some(1)
    })
    .await;
    let found = limiter.metrics().store;
    assert!(!found.is_up);
    assert!(found.failures.timeout >= 5, "{found:?}");
}
