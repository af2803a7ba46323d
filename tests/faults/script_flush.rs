//! The scripts are flushed again and again.

use std::time::Duration;

use tower_throttle::TokenBucket;

use crate::support::{DEADLINE, RedisServer};
use crate::{
    checker,
    figures::{ms, or_long, tell},
    ledger::{Outcome, Recorder},
    load::Load,
    proxy::Proxy,
    rig,
};

const HIGHEST: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_flush_every_100_ms_costs_no_decision() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let (deadline, in_time) = rig::patience();
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(deadline, &proxy.url()), quota);
    rig::ready(&limiter).await;

    let recorder = Recorder::new(0);
    let load = Load {
        keys: 500,
        ..Load::OF_ONE_IN_THREE
    };
    let flushes = or_long(30, 600);
    let flushing = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..flushes {
            ticks.tick().await;
            server.command(&["SCRIPT", "FLUSH"]);
        }
    };
    load.run(&limiter, &recorder, flushing).await;

    let ledger = recorder.ledger();
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    let charges = rig::charges(&direct, &ledger, |_| HIGHEST).await;
    checker::charged(&ledger, &charges, 1).expect("I5");
    checker::nothing_broke(&ledger).expect("I7");
    let latency = checker::answered(&ledger, in_time).expect("I2");
    let sent = proxy.sent();
    assert_eq!(sent.sent_again(), 0);
    let by_store = rig::count(&ledger, Outcome::is_by_store);
    let total = ledger.len() as u64;
    assert!(total > flushes * 50, "{total}");
    assert!(
        by_store * 1_000 >= total * 999,
        "{:?}",
        checker::outcomes(&ledger)
    );
    let loads = sent.loads();
    assert!(loads >= flushes / 2, "the flushes were noticed: {loads}");
    // The first load is for a server that never had the script.
    assert!(loads <= flushes + 1, "{loads} loads for {flushes} flushes");
    tell(
        "script flush",
        flushes,
        &[
            ("decided by the store", format!("{by_store} of {total}")),
            ("loads", loads.to_string()),
            ("p99.9", ms(latency.p999)),
            ("longest", ms(latency.most)),
        ],
    );
}
