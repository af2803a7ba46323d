//! Connections that are lost: to a dead server, to a live one, and to one that cannot be
//! reached again.

use std::{io::Read, net::Shutdown, time::Instant};

use tokio::time::sleep;

use crate::prelude::*;
use crate::support::fake;

/// A check that waits for its timeout is not told that the server is unavailable.
const LONG: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::from_millis(500);
/// A connection is replaced when a check has no reply after this much silence.
const FORGOTTEN: Duration = Duration::from_millis(2_200);
/// It is replaced in any case after six seconds of silence.
const REPLACED: Duration = Duration::from_secs(7);
const QUOTA: TokenBucket = TokenBucket::per_second(1_000_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_fail_at_once_while_no_server_listens() {
    let mut row = Row::start("lost connection killed");
    let mut server = RedisServer::start();
    let limiter = rig::limiter(rig::store(LONG, &server.url()), QUOTA);
    rig::ready(&limiter).await;
    server.kill();
    let mut times = Vec::new();
    for number in 0..50_u64 {
        let asked = Instant::now();
        let answer = limiter.check(number).await;
        let error = answer.expect_err("no server listens");
        assert!(error.is_unavailable(), "{error:?}");
        times.push(asked.elapsed());
        sleep(Duration::from_millis(3)).await;
    }
    let times = Times::new(times);
    row.figure("p50", ms(times.of_share(0.5)));
    row.took("longest", times.of_share(1.0), AT_ONCE);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_in_flight_fail_at_once_when_their_connection_is_lost() {
    let mut row = Row::start("lost connection under way");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let limiter = rig::limiter(rig::store(LONG, &proxy.url()), QUOTA);
    rig::ready(&limiter).await;
    let frozen = signals::freeze(server.pid());
    let mut checks = JoinSet::new();
    for number in 0..64_u64 {
        let limiter = limiter.clone();
        checks.spawn(async move { limiter.check(number).await });
    }
    // They are in flight once the proxy has seen the first.
    let sent = || proxy.calls_by_connection().iter().sum::<u64>() > 1;
    wait::until("a call", sent);
    proxy.reset_all();
    let reset = Instant::now();
    while let Some(answer) = checks.join_next().await {
        let error = answer.expect("no panic").expect_err("no answer");
        assert!(error.is_unavailable(), "{error:?}");
    }
    let took = reset.elapsed();
    drop(frozen);
    row.took("all failed after", took, AT_ONCE);
    row.tell(1);
}

/// A peer that accepts, announces that it will send nothing, and reads on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_to_a_silent_peer_backs_off() {
    let mut row = Row::start("lost connection FIN");
    let connects = Arc::new(Mutex::new(0));
    let count = Arc::clone(&connects);
    let port = fake::listen(move |_, mut stream| {
        *count.lock().expect("a count") += 1;
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let store = rig::store(rig::CALL, &format!("redis://127.0.0.1:{port}/"));
    let limiter = rig::limiter(store, QUOTA);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        assert!(limiter.check("ann").await.is_err());
        sleep(Duration::from_millis(5)).await;
    }
    let connects = *connects.lock().expect("a count");
    // The first attempts follow soon, and the others after half a second at least.
    let seconds = started.elapsed().as_secs_f64();
    assert!(f64::from(connects) <= 6.0 + 2.0 * seconds, "{connects}");
    row.figure("seconds", format!("{seconds:.1}"));
    row.figure("connects", connects);
    row.tell(1);
}

/// A NAT has dropped the flow, and no check came meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_flow_costs_at_most_one_check() {
    for (idle, soon) in [(Some(FORGOTTEN), AT_ONCE), (None, REPLACED)] {
        let mut row = Row::start("lost connection forgotten");
        let server = RedisServer::start();
        let proxy = Proxy::before(server.port());
        let limiter = rig::limiter(rig::store(FORGOTTEN, &proxy.url()), QUOTA);
        rig::ready(&limiter).await;
        let _ = limiter.check("ann").await.expect("a decision");
        proxy.forget_flows();
        let forgotten = Instant::now();
        let mut failed = 0;
        if let Some(idle) = idle {
            sleep(idle).await;
            failed += u64::from(limiter.check("ann").await.is_err());
        }
        let replaced = wait::until_async("another connection", async || {
            proxy.connects_since(forgotten) > 0
        });
        row.took("replaced after", replaced.await, soon);
        rig::ready(&limiter).await;
        for number in 0..5_u64 {
            let _ = limiter.check(number).await.expect("a decision");
        }
        row.figure("failed checks", failed);
        row.tell(5);
    }
}

/// fred supervises this client, and reports it as connected until it has slept for three
/// seconds.
#[cfg(feature = "redis-client")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_on_a_client_handed_in_also_fail_at_once() {
    use fred::prelude::*;

    let mut row = Row::start("lost connection handed in");
    let mut server = RedisServer::start();
    let config = Config::from_url(&server.url()).expect("a URL");
    let mut builder = Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::new_constant(0, 3_000));
    let client = builder.build().expect("a client");
    let _task = client.init().await.expect("a connection");
    let store = rig::builder().timeout(LONG).client(client);
    let limiter = rig::limiter(store.expect("a store"), QUOTA);
    rig::ready(&limiter).await;
    server.kill();
    let asked = Instant::now();
    // A check in flight fails before the loss is known, and the next one may wait.
    let fails_at_once = async || {
        let answer = tokio::time::timeout(AT_ONCE / 2, limiter.check("ann")).await;
        matches!(answer, Ok(Err(error)) if error.is_unavailable())
    };
    wait::until_async("the loss", async || {
        fails_at_once().await && fails_at_once().await
    })
    .await;
    row.took("known to be lost after", asked.elapsed(), AT_ONCE);
    // Longer than the interval at which the client's connection is checked.
    let (mut times, known) = (Vec::new(), Instant::now());
    while known.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let answer = limiter.check("ann").await;
        let error = answer.expect_err("no server listens");
        assert!(error.is_unavailable(), "{error:?}");
        times.push(asked.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    let failed = times.len() as u64;
    row.took("longest", Times::new(times).of_share(1.0), AT_ONCE);
    server.run();
    rig::ready(&limiter).await;
    row.tell(failed);
}
