//! Leased units that are not used are refunded.

use super::*;

const UNITS: u64 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_units_return_and_the_store_can_be_dropped() {
    let server = RedisServer::start();
    let watcher = of(&uncached(&server.url()), UNITS);
    let store = uncached(&server.url());
    let limiter = of(&store, UNITS);
    let asked = warm(&limiter).await;
    all_is_back(&watcher, UNITS - asked.admitted).await;

    // They are also refunded after the limiter is dropped.
    let again = warm(&limiter).await;
    drop((limiter, store));
    all_is_back(&watcher, UNITS - asked.admitted - again.admitted).await;
    eventually_async("a store that ends", || async {
        let clients = server.command(&["CLIENT", "LIST"]);
        // The watcher, and this command.
        clients.lines().count() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_returns_after_all_leases_are_refunded() {
    let server = RedisServer::start();
    let watcher = of(&uncached(&server.url()), UNITS);
    let mut admitted = 0;
    for round in 0..20 {
        let store = uncached(&server.url());
        let limiter = of(&store, UNITS);
        admitted += warm(&limiter).await.admitted;
        store.shutdown().await;
        assert_eq!(left(&watcher).await, UNITS - admitted, "round {round}");
        let after = limiter.check("ann").await;
        assert!(after.is_err(), "{after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_reset_voids_leases_and_leases_under_way() {
    const UNITS: u64 = 10_000;
    let server = RedisServer::start();
    let store = uncached(&server.url());
    let limiter = of(&store, UNITS);
    for round in 0..5 {
        let hot = {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                loop {
                    drop(limiter.check("ann").await);
                    tokio::task::yield_now().await;
                }
            })
        };
        warm(&limiter).await;
        hot.abort();
        let _ = hot.await;
        limiter.reset("ann").await.expect("a reset");
        // Leased units from before the reset are neither used nor refunded to the new bucket,
        // and no unit of the new bucket is lost. One check may come after the reset.
        let asked = exhaust(&limiter).await;
        let all = UNITS - 1..=UNITS;
        assert!(all.contains(&asked.admitted), "round {round}: {asked:?}");
        limiter.reset("ann").await.expect("a reset");
    }
}
