//! A server that freezes, idle and under load.

use crate::prelude::*;

const FROZEN: Duration = Duration::from_secs(10);
const MOST_SENDS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_under_load_is_used_again_when_it_thaws() {
    let mut row = Row::start("freeze at load");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let (run, server) = outage::at(&proxy.url(), move |outage| {
        let frozen = signals::freeze(server.pid());
        outage.hold(FROZEN);
        drop(frozen);
        server
    })
    .await;
    run.is_bridged(&mut row, Vec::new());
    run.sends_at_most(&mut row, &proxy, MOST_SENDS);
    assert_eq!(proxy.sent().sent_again(), 0);
    server.assert_all_keys_expire();
    row.tell(1);
}

/// No check comes while it freezes, and the first ones afterwards find out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_while_idle_is_noticed() {
    let mut row = Row::start("freeze idle");
    let server = RedisServer::start();
    let url = server.url();
    let limiter = rig::limiter(rig::store(rig::CALL, &url), quota());
    rig::ready(&limiter).await;
    let frozen = signals::freeze(server.pid());
    let idle = Duration::from_secs(or_long(1, 3));
    tokio::time::sleep(idle).await;
    let (run, _server) = outage::under_load(&limiter, Some(&url), move |outage| {
        outage.hold(FROZEN);
        drop(frozen);
        server
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, Vec::new());
    row.tell(1);
}

/// Checks that were sent before it froze are charged when it thaws: never less than was
/// admitted, and no more than was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_charges_only_overcount() {
    const HIGHEST: u64 = 1_000_000;
    let mut row = Row::start("freeze charges");
    let server = RedisServer::start();
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(rig::CALL, &server.url()), quota);
    rig::ready(&limiter).await;
    let (run, server) = outage::under_load(&limiter, None, move |outage| {
        let frozen = signals::freeze(server.pid());
        outage.hold(FROZEN);
        drop(frozen);
        server
    })
    .await;
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    let charges = rig::charges(&direct, &run.ledger, |_| HIGHEST).await;
    let surplus = checker::charged(&run.ledger, &charges, 1).expect("I5");
    checker::nothing_broke(&run.ledger).expect("I7");
    row.figure("charged without a reply", surplus);
    row.tell(run.ledger.len() as u64);
}
