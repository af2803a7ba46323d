//! A far server whose replies are still in time. The exact claim is proved in
//! `tests/limits/dispatch.rs`, where no machine is late.

use std::time::Instant;

use crate::prelude::*;
use crate::proxy::Mode;

const RATES: [u64; 3] = [50, 500, 5_000];
/// The proxy's timers are late by this much on average.
const LATE: Duration = Duration::from_micros(500);

/// Returns how long a check takes while there is no other.
async fn lone(limiter: &Limiter) -> Duration {
    let mut took = Vec::new();
    for _ in 0..10 {
        let asked = Instant::now();
        let _ = limiter.peek("unused").await;
        took.push(asked.elapsed());
    }
    Times::new(took).of_share(0.5)
}

async fn row(distance_ms: u64, per_s: u64) {
    let mut row = Row::start(format!("far server {distance_ms} ms {per_s}/s"));
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let distance = Duration::from_millis(distance_ms);
    proxy.set(Mode::Delay(distance / 2 - LATE));
    let store = rig::store(rig::CALL, &proxy.url());
    let limiter = Limiter::new(store, TokenBucket::per_second(1_000));
    rig::ready(&limiter).await;
    row.figure("alone", ms(lone(&limiter).await));
    let load = Load {
        per_s,
        keys: 20_000,
        hot_per_s: 0,
        leaving: None,
    };
    // The distance and the capacity of the server are measured within some round trips.
    let warm = Duration::from_millis(300);
    load.run_for(&limiter, &Recorder::new(0), warm).await;
    proxy.forget();
    let recorder = Recorder::new(0);
    let time = Duration::from_secs(or_long(2, 10));
    load.run_for(&limiter, &recorder, time).await;

    let ledger = recorder.ledger();
    checker::nothing_broke(&ledger).expect("I7");
    let times = checker::answered(&ledger).expect("I2");
    let per_call = ledger.len() as f64 / proxy.sent().calls() as f64;
    row.figure("p50", ms(times.of_share(0.5)));
    row.figure("p99", ms(times.of_share(0.99)));
    row.figure("checks a call", format!("{per_call:.1}"));
    let local = rig::count(&ledger, |outcome| !outcome.is_by_store());
    row.failed(local, ledger.len(), 0.01, rig::CALL - distance);
    row.tell(ledger.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_server_decides_in_time() {
    for distance_ms in [5, 20, 30, 45] {
        // A build that is not optimized is too slow for the last.
        for per_s in or_long(&RATES[..2], &RATES[..]) {
            row(distance_ms, *per_s).await;
        }
    }
}
