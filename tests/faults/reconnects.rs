//! How soon lost connections are replaced, and what that costs.

use std::time::Instant;

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::prelude::*;
use crate::{
    proxy::Mode,
    support::{fake, port::Port},
};

const SOON: Duration = Duration::from_millis(25);
const QUOTA: TokenBucket = TokenBucket::per_second(1_000_000);

/// Measures the time until the store decides again after a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_live_server_is_remade_at_once() {
    let mut row = Row::start("lost connection reset");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), QUOTA);
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
        wait::until("a new connection", || proxy.connects_since(reset) > 0);
        while limiter.check(number).await.is_err() {
            sleep(Duration::from_micros(200)).await;
        }
        times.push(reset.elapsed());
    }
    let times = Times::new(times);
    row.figure("decides again after, p50", ms(times.of_share(0.5)));
    row.claim("decides again", SOON, 0.5, times.share_above(SOON));
    row.tell(rounds);
}

/// Many checks, while one reply in a hundred is lost together with its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_one_reply_in_a_hundred_fail_few_checks() {
    const RATES: [u32; 3] = [200, 1_000, 5_000];
    // A build that is not optimized is too slow for the last.
    for per_s in or_long(&RATES[..2], &RATES[..]).iter().copied() {
        let mut row = Row::start(format!("lost connection one reply in 100 reset {per_s}/s"));
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
        let answers = checks.join_all().await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        row.failed(failed as u64, answers.len(), 0.1, rig::CALL);
        row.tell(total);
    }
}

/// As many stores as there are processes, and a server that comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_spreads_its_reconnects() {
    const PROCESSES: usize = 50;
    let mut row = Row::start("lost connection fleet");
    let port = Port::claim();
    let url = format!("redis://127.0.0.1:{port}/");
    let stores: Vec<RedisStore> = (0..PROCESSES)
        .map(|_| rig::store(rig::CALL, &url))
        .collect();
    sleep(Duration::from_secs(6)).await;
    let (started, times) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let accepted = Arc::clone(&times);
    fake::listen_at(port.number(), move |_, stream| {
        accepted.lock().expect("no panic").push(started.elapsed());
        // Enough for the client to become idle.
        fake::converse(stream, |_| Some(b"+OK\r\n".to_vec()));
    });
    let times = || times.lock().expect("no panic").clone();
    wait::until_async("connections", async || times().len() >= PROCESSES).await;
    let mut times = times();
    times.sort_unstable();
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
    row.figure("most within 200 ms", most);
    let too_many = most > PROCESSES / 2;
    row.claim("are spread", window, 0.0, f64::from(u8::from(too_many)));
    row.took("last after", last, Duration::from_secs(2));
    row.tell(PROCESSES as u64);
}
