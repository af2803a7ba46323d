//! Redis goes down while units are leased.

use super::*;

const UNITS: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_down_leased_units_are_used_up_and_no_more() {
    // With persistence, it still knows what was taken.
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = store_at(&server.url());
    let limiter = of(&store, UNITS);
    let mut asked = Asked::default();
    // A lease of some size.
    while asked.from_leases < 2_000 {
        assert!(asked.count(&limiter.check("ann").await, 1));
    }
    asked.add(warm(&limiter).await);
    server.kill();
    let mut after = Asked::default();
    while after.count(&limiter.check("ann").await, 1) {}
    assert_eq!(after.admitted, after.from_leases, "another store decided");
    assert!(after.admitted <= UNITS / 8, "{after:?}");
    asked.add(after);

    server.run();
    let is_back = || async { limiter.peek("ann").await.is_ok() };
    eventually_async("Redis again", is_back).await;
    let charged = UNITS - left(&limiter).await;
    assert!(charged >= asked.admitted, "{charged} for {asked:?}");
    warm(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_whose_refund_is_lost_stay_taken() {
    let server = RedisServer::start();
    let watcher = of(&uncached(&server.url()), UNITS);
    let mut admitted = 0;
    // On a slow machine a refund may arrive before it can fail.
    while refusals(&server) == 0 {
        let store = uncached(&server.url());
        admitted += warm(&of(&store, UNITS)).await.admitted;
        server.command(&["ACL", "SETUSER", "default", "-psetex"]);
        // Waits for all round trips, which fail.
        store.shutdown().await;
        server.command(&["ACL", "SETUSER", "default", "+psetex"]);
    }
    let lost = UNITS - admitted - left(&watcher).await;
    assert!((1..=UNITS / 8).contains(&lost), "{lost}");
    let store = uncached(&server.url());
    admitted += warm(&of(&store, UNITS)).await.admitted;
    store.shutdown().await;
    assert_eq!(left(&watcher).await, UNITS - admitted - lost);
}

fn refusals(server: &RedisServer) -> usize {
    server.command(&["ACL", "LOG"]).matches("psetex").count()
}
