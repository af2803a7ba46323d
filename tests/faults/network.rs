//! A network that loses everything, is slow, or drips.

use crate::prelude::*;
use crate::{
    outage::{Run, load},
    proxy::Mode,
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
    let mut row = Row::start(name);
    let (run, proxy) = through(mode).await;
    run.is_bridged(&mut row, Vec::new());
    run.sends_at_most(&mut row, &proxy, MOST_SENDS);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_bridged() {
    row("network black hole", Mode::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_200_ms_each_way_is_bridged() {
    row("network delay", Mode::Delay(Duration::from_millis(200))).await;
}

/// Each step of an attempt takes longer than the second that it may take with short timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_a_long_timeout_connects_over_a_slow_network() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    proxy.set(Mode::Delay(Duration::from_millis(600)));
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), quota());
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(decision.source(), Source::Store);
}

/// A call may take as long as one round trip, but not as two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_far_away_that_lost_its_scripts_is_used_again() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let limiter = rig::limiter(rig::store(Duration::from_secs(1), &proxy.url()), quota());
    rig::ready(&limiter).await;
    proxy.set(Mode::Delay(Duration::from_millis(350)));
    server.command(&["SCRIPT", "FLUSH"]);
    eventually_async("a decision of the store", || async {
        limiter
            .check("ann")
            .await
            .is_ok_and(|decision| decision.source() == Source::Store)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dripping_network_is_bridged() {
    let drip = Mode::Drip {
        bytes: 4,
        every: Duration::from_millis(5),
    };
    row("network drip", drip).await;
}

/// Connections come and go. The connections at the end are all used: how evenly is a figure, as a
/// connection that is served late gets fewer calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_few_decisions() {
    const CONNECTIONS: usize = 4;
    let mut row = Row::start("network loss");
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
    run.judge(&mut row, Vec::new());
    let lost = run
        .ledger
        .iter()
        .filter(|entry| !entry.outcome.is_by_store());
    let lost = format!("{} of {}", lost.count(), run.ledger.len());
    row.figure("not by the store", lost);

    wait::until_async("all connections", async || {
        let _ = limiter.peek("unused").await;
        proxy.calls_by_connection().len() == CONNECTIONS
    })
    .await;
    proxy.forget();
    let enough = or_long(600, 10_000);
    let calls = wait::until_async("calls", async || {
        proxy.calls_by_connection().iter().sum::<u64>() > enough
    });
    load().run(&limiter, &Recorder::new(0), calls).await;
    let calls = proxy.calls_by_connection();
    assert_eq!(calls.len(), CONNECTIONS, "{calls:?}");
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
    row.figure("calls on each connection", format!("{calls:?}"));
    row.tell(1);
}
