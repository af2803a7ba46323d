//! A network that loses everything, is slow, or drips.

use std::{sync::Arc, time::Duration};

use crate::support::{DEADLINE, RedisServer};
use crate::{
    figures::{or_long, tell},
    ledger::Recorder,
    outage::{self, LOAD, Run, quota},
    proxy::{Mode, Proxy},
    rig, wait,
};

/// There is one probe a second. Two may fall into one of the test's seconds.
const MOST_SENDS: usize = 2;
const LASTS: Duration = Duration::from_secs(60);

async fn through(mode: Mode) -> (Run, Arc<Proxy>) {
    let server = RedisServer::start();
    let proxy = Arc::new(Proxy::before(server.port()));
    let (run, ()) = outage::at(&proxy.url(), {
        let proxy = Arc::clone(&proxy);
        move |outage| {
            proxy.set(mode);
            outage.hold(LASTS);
            proxy.set(Mode::Pass);
        }
    })
    .await;
    assert_eq!(proxy.sent().sent_again(), 0);
    (run, proxy)
}

async fn row(name: &str, mode: Mode) {
    let _alone = rig::alone().await;
    let (run, proxy) = through(mode).await;
    let mut figures = run.judge(Vec::new());
    run.is_open_soon();
    let sends = run.sends_at_most(&proxy, MOST_SENDS);
    figures.push(("calls in a second of it", sends.to_string()));
    tell(name, 1, &figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_bridged() {
    row("network black hole", Mode::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_200_ms_each_way_is_bridged() {
    row("network delay", Mode::Delay(Duration::from_millis(200))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dripping_network_is_bridged() {
    let drip = Mode::Drip {
        bytes: 4,
        every: Duration::from_millis(5),
    };
    row("network drip", drip).await;
}

/// Connections come and go. The connections at the end are all used, each as much as the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_few_decisions() {
    const CONNECTIONS: usize = 4;
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Arc::new(Proxy::before(server.port()));
    let builder = rig::builder().timeout(rig::CALL).connections(CONNECTIONS);
    let limiter = rig::limiter(builder.connect(&proxy.url()).expect("a store"), quota());
    rig::ready(&limiter).await;
    let (run, ()) = outage::under_load(&limiter, None, {
        let proxy = Arc::clone(&proxy);
        move |outage| {
            proxy.set(Mode::Lossy { percent: 5 });
            outage.hold(LASTS);
            proxy.set(Mode::Pass);
        }
    })
    .await;
    assert_eq!(proxy.sent().sent_again(), 0);
    let mut figures = run.judge(Vec::new());
    let lost = run
        .ledger
        .iter()
        .filter(|entry| !entry.outcome.is_by_store());
    let lost = format!("{} of {}", lost.count(), run.ledger.len());
    figures.push(("not by the store", lost));

    wait::until_async("all connections", DEADLINE, async || {
        let _ = limiter.peek("unused").await;
        proxy.calls_by_connection().len() == CONNECTIONS
    })
    .await;
    proxy.forget();
    let time = Duration::from_secs(or_long(2, 20));
    LOAD.run_for(&limiter, &Recorder::new(0), time).await;
    let calls = proxy.calls_by_connection();
    assert_eq!(calls.len(), CONNECTIONS, "{calls:?}");
    let even = calls.iter().sum::<u64>() / CONNECTIONS as u64;
    assert!(even > 100, "{calls:?}");
    let is_even = |calls: &u64| (even * 9..=even * 11).contains(&(calls * 10));
    assert!(calls.iter().all(is_even), "{calls:?}");
    figures.push(("calls on each connection", format!("{calls:?}")));
    tell("network loss", 1, &figures);
}
