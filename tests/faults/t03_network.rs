//! T3: a network that loses everything, is slow, or drips.

use std::{sync::Arc, time::Duration};

use crate::{
    common::RedisServer,
    figures::tell,
    outage::{self, Run, quota},
    proxy::{Mode, Proxy},
    rig,
};

/// Probes once a second; two may fall into a second of ours.
const MOST_SENDS: usize = 2;
const LASTS: Duration = Duration::from_secs(60);

async fn through(mode: Mode) -> (Run, Arc<Proxy>) {
    let server = RedisServer::start();
    let proxy = Arc::new(Proxy::before(server.port()));
    let url = proxy.url();
    let limiter = rig::limiter(rig::store(rig::CALL, &url), quota());
    rig::ready(&limiter).await;
    let (run, ()) = outage::under_load(&limiter, Some(&url), {
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
async fn t03_black_hole() {
    row("T3 black hole", Mode::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_200_ms_each_way() {
    row("T3 delay", Mode::Delay(Duration::from_millis(200))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_drop_by_drop() {
    let drip = Mode::Drip {
        bytes: 4,
        every: Duration::from_millis(5),
    };
    row("T3 drip", drip).await;
}
