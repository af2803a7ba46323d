//! The scripts are flushed again and again.

use crate::prelude::*;

const HIGHEST: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_flush_every_100_ms_costs_no_decision() {
    let mut row = Row::start("script flush");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(rig::patience(), &proxy.url()), quota);
    rig::ready(&limiter).await;

    let recorder = Recorder::new(0);
    let load = Load {
        keys: 500,
        ..Load::OF_ONE_IN_THREE
    };
    let flushes = or_long(20, 600);
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
    row.decided_by_store(&ledger, 0.001);
    let sent = proxy.sent();
    assert_eq!(sent.sent_again(), 0);
    let loads = sent.loads();
    assert!(loads > 1, "the flushes were noticed: {loads}");
    // The first load is for a server that never had the script.
    assert!(loads <= flushes + 1, "{loads} loads for {flushes} flushes");
    row.figure("loads", loads);
    row.answered(&ledger);
    row.tell(flushes);
}
