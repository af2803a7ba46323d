//! T2: a server that stands still.

use std::time::Duration;

use tower_throttle::TokenBucket;

use crate::{
    checker,
    common::{DEADLINE, RedisServer},
    figures::tell,
    outage, rig, signals,
};

const FROZEN: Duration = Duration::from_secs(10);

/// What was sent before it froze is charged when it thaws: never less than
/// was admitted, and no more than was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t02_late_charges_only_count_too_much() {
    const HIGHEST: u64 = 1_000_000;
    let _alone = rig::alone().await;
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
    let figure = ("charged without a reply", surplus.to_string());
    tell("T2 charges", run.ledger.len() as u64, &[figure]);
}
