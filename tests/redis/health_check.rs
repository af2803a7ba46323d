//! `ready` returns success exactly when the store can decide.

use tokio::time::Instant;

use crate::prelude::*;

async fn eventually_healthy(store: &RedisStore) {
    let is_healthy = async || store.health_check().await.is_ok();
    eventually_async("a healthy store", is_healthy).await;
}

async fn eventually_refused(store: &RedisStore) {
    eventually_async("a refusal", async || {
        let health = store.health_check().await;
        health.is_err_and(|error| error.is_refused())
    })
    .await;
}

#[tokio::test]
async fn ready_reports_whether_the_server_is_there() {
    let mut server = RedisServer::stopped(&[]);
    let store = store_at(&server.url());
    let error = store.health_check().await.expect_err("no server listens");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(error.to_string().contains(&server.port().to_string()));
    server.run();
    eventually_healthy(&store).await;
    server.assert_all_keys_expire();
    eventually("no key left", || server.keys().is_empty());

    server.kill();
    eventually_async("an error", || async { store.health_check().await.is_err() }).await;
    server.run();
    eventually_healthy(&store).await;
    store.shutdown().await;
    let error = store.health_check().await.expect_err("it was shut down");
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test]
async fn a_server_that_rejects_all_writes_is_unhealthy() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~tt?{*", "+@all"];
    server.command(&user);
    let store = store_at(&format!("redis://app:pw@127.0.0.1:{}/", server.port()));
    let unused = Port::claim();
    let run = |line: &str| server.command(&line.split(' ').collect::<Vec<_>>());
    for [fault, mended] in [
        ["ACL SETUSER app -evalsha", "ACL SETUSER app +evalsha"],
        ["ACL SETUSER app -psetex", "ACL SETUSER app +psetex"],
        ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"],
        [&format!("REPLICAOF 127.0.0.1 {unused}"), "REPLICAOF NO ONE"],
    ] {
        eventually_healthy(&store).await;
        run(fault);
        eventually_refused(&store).await;
        run(mended);
    }
    eventually_healthy(&store).await;
}

/// In paused time, which passes as soon as nothing else can happen.
#[tokio::test(start_paused = true)]
async fn ready_answers_by_the_deadline() {
    let port = fake::silent();
    let deadline = Duration::from_millis(100);
    let builder = hasty().timeout(deadline);
    for form in ["redis", "redis-cluster"] {
        let url = format!("{form}://127.0.0.1:{port}/");
        let store = builder.clone().connect(&url);
        let asked = Instant::now();
        let error = store.expect("a store").health_check().await;
        error.expect_err("no answer");
        let took = asked.elapsed();
        assert!(took <= deadline + Duration::from_millis(1), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primary_of_a_cluster_is_asked() {
    let cluster = RedisCluster::start(3, 0);
    let store = store_at(&cluster.url());
    eventually_healthy(&store).await;
    for node in &cluster.nodes {
        let stats = node.command(&["INFO", "commandstats"]);
        assert!(stats.contains("cmdstat_eval:"), "{stats}");
    }
    for node in &cluster.nodes {
        node.command(&["ACL", "SETUSER", "default", "-evalsha"]);
        let error = store.health_check().await.expect_err("one of them refuses");
        let port = format!(":{}: ", node.port());
        let is_named = error.is_refused() && error.to_string().contains(&port);
        assert!(is_named, "{error}");
        node.command(&["ACL", "SETUSER", "default", "+evalsha"]);
        eventually_healthy(&store).await;
    }
}
