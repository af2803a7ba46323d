//! Connections that are lost: to a dead server, to a live one, and to one that cannot be
//! reached again.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tower_throttle::{RedisStore, TokenBucket};

use crate::support::{DEADLINE, RedisServer, fake, port::Port};
use crate::{
    figures::{ms, or_long, tell},
    proxy::{Mode, Proxy},
    rig, signals, wait,
};

/// Long enough to distinguish a check that waits for it from one that fails at once.
const LONG: Duration = Duration::from_secs(2);
const QUOTA: TokenBucket = TokenBucket::per_second(1_000_000);

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_fail_at_once_while_no_server_listens() {
    let _alone = rig::alone().await;
    let mut server = RedisServer::start();
    let limiter = rig::limiter(rig::store(LONG, &server.url()), QUOTA);
    rig::ready(&limiter).await;
    server.kill();
    let mut times = Vec::new();
    for number in 0..50_u64 {
        let asked = Instant::now();
        let answer = timeout(2 * LONG, limiter.check(number)).await;
        let error = answer.expect("an answer").expect_err("no server listens");
        assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
        times.push(asked.elapsed());
        if times.iter().sum::<Duration>() > 2 * LONG {
            break;
        }
        sleep(Duration::from_millis(3)).await;
    }
    let longest = times.iter().copied().max().unwrap_or_default();
    let half = median(times);
    tell(
        "lost connection killed",
        1,
        &[("p50", ms(half)), ("longest", ms(longest))],
    );
    assert!(longest < LONG / 4, "p50 {half:?}, longest {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_in_flight_fail_at_once_when_their_connection_is_lost() {
    let _alone = rig::alone().await;
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
    wait::until("a call", DEADLINE, sent);
    proxy.reset_all();
    let reset = Instant::now();
    while let Some(answer) = checks.join_next().await {
        let error = answer.expect("no panic").expect_err("no answer");
        assert!(error.is_unavailable(), "{error:?}");
    }
    let took = reset.elapsed();
    drop(frozen);
    tell(
        "lost connection under way",
        1,
        &[("all failed after", ms(took))],
    );
    assert!(took < LONG / 4, "{took:?}");
}

/// Measures the time until the store decides again after a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_live_server_is_remade_at_once() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let limiter = rig::limiter(rig::store(rig::CALL, &proxy.url()), QUOTA);
    let mut times = Vec::new();
    let rounds = or_long(20, 200);
    for number in 0..rounds {
        rig::ready(&limiter).await;
        // Idle or busy: an instant at which its calls are answered.
        for key in 0..5_u64 {
            let _ = limiter.check(key).await.expect("a decision");
        }
        proxy.reset_all();
        let reset = Instant::now();
        // A reset has arrived once one check, or one attempt to connect, has met it.
        wait::until("a new connection", DEADLINE, || {
            proxy.connects_since(reset) > 0
        });
        while limiter.check(number).await.is_err() {
            sleep(Duration::from_micros(200)).await;
        }
        times.push(reset.elapsed());
    }
    let half = median(times);
    tell(
        "lost connection reset",
        rounds,
        &[("decides again after, p50", ms(half))],
    );
    assert!(half < Duration::from_millis(25), "{half:?}");
}

/// Many checks, while one reply in a hundred is lost together with its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_one_reply_in_a_hundred_fail_few_checks() {
    let _alone = rig::alone().await;
    let mut worst = 0.0_f64;
    for per_s in [200_u32, 1_000, 5_000] {
        let server = RedisServer::start();
        let proxy = Proxy::before(server.port());
        let limiter = rig::limiter(rig::store(rig::CALL, &proxy.url()), QUOTA);
        rig::ready(&limiter).await;
        proxy.set(Mode::ResetReplies { one_in: 100 });
        let mut checks = JoinSet::new();
        let mut ticks = interval(Duration::from_secs(1) / per_s);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let total = u64::from(per_s) * or_long(3, 20);
        for number in 0..total {
            ticks.tick().await;
            let limiter = limiter.clone();
            checks.spawn(async move { limiter.check(number).await });
        }
        let mut failed = 0;
        while let Some(answer) = checks.join_next().await {
            failed += u64::from(answer.expect("no panic").is_err());
        }
        let percent = 100.0 * failed as f64 / total as f64;
        tell(
            "lost connection one reply in 100 reset",
            total,
            &[
                ("per second", per_s.to_string()),
                ("not decided by Redis", format!("{percent:.1} %")),
            ],
        );
        worst = worst.max(percent);
    }
    assert!(worst < 10.0, "{worst:.1} %");
}

/// A peer that accepts, announces that it will send nothing, and reads on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_to_a_silent_peer_backs_off() {
    let _alone = rig::alone().await;
    let connects = Arc::new(Mutex::new(0_u32));
    let count = Arc::clone(&connects);
    let port = fake::listen(move |_, mut stream| {
        *count.lock().expect("a count") += 1;
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let store = rig::store(rig::CALL, &format!("redis://127.0.0.1:{port}/"));
    let limiter = rig::limiter(store, QUOTA);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        assert!(limiter.check("ann").await.is_err());
        sleep(Duration::from_millis(5)).await;
    }
    let connects = *connects.lock().expect("a count");
    tell(
        "lost connection FIN",
        1,
        &[("connects in 5 s", connects.to_string())],
    );
    assert!(connects <= 12, "{connects} connects in 5 s");
}

/// As many stores as there are processes, and a server that comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_spreads_its_reconnects() {
    const PROCESSES: usize = 50;
    let _alone = rig::alone().await;
    let port = Port::claim();
    let url = format!("redis://127.0.0.1:{port}/");
    let stores: Vec<RedisStore> = (0..PROCESSES)
        .map(|_| rig::store(rig::CALL, &url))
        .collect();
    sleep(Duration::from_secs(6)).await;
    let listener = TcpListener::bind(("127.0.0.1", port.number())).expect("its port");
    let accepted = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        let mut streams = Vec::new();
        let mut times = Vec::new();
        while times.len() < PROCESSES {
            let (mut stream, _) = listener.accept().expect("a connection");
            times.push(started.elapsed());
            // Enough for the client to become idle.
            let mut answers = stream.try_clone().expect("a second handle");
            std::thread::spawn(move || {
                let mut bytes = [0; 1_024];
                while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(b"+OK\r\n");
                }
            });
            let _ = answers.flush();
            streams.push(answers);
        }
        times
    });
    let times = accepted.await.expect("connections");
    let window = Duration::from_millis(200);
    let within = |from: &Duration| {
        let to = *from + window;
        times
            .iter()
            .filter(|time| (*from..to).contains(time))
            .count()
    };
    let most = times.iter().map(within).max().unwrap_or_default();
    let last = times.last().copied().unwrap_or_default();
    drop(stores);
    tell(
        "lost connection fleet",
        PROCESSES as u64,
        &[
            ("most within 200 ms", most.to_string()),
            ("last after", ms(last)),
        ],
    );
    assert!(most <= PROCESSES / 2, "{most} of {PROCESSES} within 200 ms");
    assert!(last < Duration::from_secs(2), "{last:?}");
}

/// A NAT has dropped the flow, and no check came meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_flow_costs_at_most_one_check() {
    let _alone = rig::alone().await;
    for idle in [Duration::from_secs(3), Duration::from_secs(8)] {
        let server = RedisServer::start();
        let proxy = Proxy::before(server.port());
        let limiter = rig::limiter(rig::store(rig::CALL, &proxy.url()), QUOTA);
        rig::ready(&limiter).await;
        let _ = limiter.check("ann").await.expect("a decision");
        proxy.forget_flows();
        sleep(idle).await;
        let mut failed = 0;
        for number in 0..5_u64 {
            failed += u64::from(limiter.check(number).await.is_err());
            sleep(Duration::from_millis(200)).await;
        }
        tell(
            "lost connection forgotten",
            5,
            &[
                ("idle for", ms(idle)),
                ("failed checks", failed.to_string()),
            ],
        );
        let most = u64::from(idle < Duration::from_secs(7));
        assert!(failed <= most, "{failed} of 5 failed after {idle:?}");
    }
}

/// fred supervises this client, and reports it as connected until it has slept for three
/// seconds.
#[cfg(feature = "redis-client")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_on_a_client_handed_in_also_fail_at_once() {
    use fred::prelude::*;

    let _alone = rig::alone().await;
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
        let answer = timeout(LONG / 10, limiter.check("ann")).await;
        matches!(answer, Ok(Err(error)) if error.is_unavailable())
    };
    wait::until_async("the loss", DEADLINE, async || {
        fails_at_once().await && fails_at_once().await
    })
    .await;
    let (mut failed, known) = (0_u64, Instant::now());
    // Longer than the interval at which the client's connection is checked.
    while known.elapsed() < LONG {
        let check = Instant::now();
        limiter.check(failed).await.expect_err("no server listens");
        assert!(check.elapsed() < LONG / 4, "{:?}", check.elapsed());
        failed += 1;
        sleep(LONG / 200).await;
    }
    let took = known.duration_since(asked);
    server.run();
    rig::ready(&limiter).await;
    tell(
        "lost connection handed in",
        failed,
        &[("known to be lost after", ms(took))],
    );
    assert!(took < LONG / 4, "{took:?}");
}
