//! A server that became a replica, and one that loads its data.

use crate::prelude::*;
use crate::support::port::Port;

const LASTS: Duration = Duration::from_secs(10);
const MOST_CONNECTS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_turned_replica_is_bridged() {
    let mut row = Row::start("role READONLY");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    // A replica of an absent primary keeps its data.
    let unused = Port::claim();
    let (run, (_server, proxy)) = outage::at(&proxy.url(), move |outage| {
        server.command(&["REPLICAOF", "127.0.0.1", &unused.to_string()]);
        outage.hold(LASTS);
        server.command(&["REPLICAOF", "NO", "ONE"]);
        (server, proxy)
    })
    .await;
    assert_eq!(run.during(Outcome::is_allowed), 0);
    run.is_bridged(&mut row, Vec::new());
    run.connects_at_most(&mut row, &proxy, MOST_CONNECTS);
    row.tell(1);
}

/// The server comes back with the data that it saved. Later charges are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_that_loads_is_bridged() {
    let mut row = Row::start("role LOADING");
    // So slow that it takes seconds, and often enough in between it answers with an error;
    // Redis 6.0 is silent.
    let slowly = ["--key-load-delay", "1000"];
    let often = RedisServer::if_known("--loading-process-events-interval-bytes 1024");
    let mut server = RedisServer::with(&[&slowly[..], &often].concat());
    let keys = or_long(2_000, 10_000).to_string();
    let fill = "for i = 1, ARGV[1] do redis.call('SET', 'filled' .. i, i) end";
    server.command(&["EVAL", fill, "0", &keys]);
    let proxy = Proxy::before(server.port());
    let (run, (_server, proxy)) = outage::at(&proxy.url(), move |_| {
        server.command(&["SAVE"]);
        server.kill();
        server.run();
        (server, proxy)
    })
    .await;
    let when = run.outage.when;
    assert!(when.to_us - when.from_us > 1_000_000, "it loads for long");
    run.is_bridged(&mut row, vec![when]);
    run.connects_at_most(&mut row, &proxy, MOST_CONNECTS);
    row.tell(1);
}
