//! What once kept a store from recovering, or leaked: callers that leave, errors inside the
//! script, clients of others, slots that disagree.

use std::{
    future::Future,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    pin::pin,
    thread,
};

use fred::{
    interfaces::{ClientLike, KeysInterface},
    types::{
        Builder,
        config::{Config, ReconnectPolicy},
    },
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tower_throttle::testing::SimulatedRedis;

use crate::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Waits until the server has no connection but that of the command, and the runtime no more tasks
/// than before.
async fn eventually_gone(server: &RedisServer, before: usize) {
    eventually_async("no connection and no task of the stores", || async {
        let clients = server.command(&["CLIENT", "LIST"]);
        (clients.lines().count(), tasks()) == (1, before)
    })
    .await;
}

/// A store that was dropped while it connected left its connection and a task behind
/// indefinitely. The same for `shutdown`, which promises to close them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_end_while_they_connect_leave_nothing_behind() {
    let server = RedisServer::start();
    let before = tasks();
    for number in 0..60_u64 {
        let store = hasty().connect(&server.url()).expect("a store");
        sleep(Duration::from_micros(number * 50)).await;
        drop(store);
    }
    eventually_gone(&server, before).await;

    let frozen = Frozen::new(&server);
    let store = hasty().connect(&server.url()).expect("a store");
    // Enough to begin.
    sleep(Duration::from_millis(200)).await;
    store.shutdown().await;
    drop(store);
    drop(frozen);
    eventually_gone(&server, before).await;
}

/// "`OOM`: failure; the breaker counts it".
#[tokio::test]
async fn the_breaker_counts_writes_that_redis_refuses() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let limiter = denying(store_at(&server.url()), TokenBucket::per_second(10));
    ready(&limiter).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.ran("evalsha");
    let mut refused = 0;
    for number in 0..100_u64 {
        let error = limiter.check(number).await.expect_err("no memory");
        assert!(error.is_refused() || error.is_unavailable(), "{error:?}");
        refused += u64::from(error.is_refused());
        let is_open = limiter.metrics().store.breakers_open == Some(1);
        assert_eq!(is_open, refused >= 5, "{refused}");
    }
    // All others failed without being sent.
    assert_eq!(server.ran("evalsha") - before, refused);
}

/// "`READONLY`: failure; when a pause of 400 ms did not help, connect anew".
#[tokio::test]
async fn a_primary_that_became_a_replica_is_connected_to_anew() {
    let (server, limiter) = served([TokenBucket::per_second(10).into()]).await;
    let unused = Port::claim();
    server.command(&["REPLICAOF", "127.0.0.1", &unused.to_string()]);
    let id = || {
        let list = server.command(&["CLIENT", "LIST"]);
        // Not the connection of this command, whichever command the store sent last.
        let ours = list.lines().find(|line| !line.contains("cmd=client"));
        ours.and_then(|line| line.split(' ').next().map(str::to_owned))
    };
    let first = id();
    assert!(first.is_some());
    eventually_async("another connection", || async {
        limiter.check("ann").await.expect_err("it is a replica");
        sleep(Duration::from_millis(20)).await;
        id().is_some_and(|id| Some(id) != first)
    })
    .await;
}

/// A caller that stops polling its check (the branch of a `select!` that lost, an element of a
/// `FuturesUnordered`) held the lock of script loading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_polling_keeps_no_other_from_loading_scripts() {
    let server = RedisServer::start();
    // Another check waits half as long for the lock.
    let store = hasty().timeout(Duration::from_secs(4));
    let store = store.connect(&server.url()).expect("a store");
    let buckets = denying(store.clone(), TokenBucket::per_second(10));
    let windows = denying(store, SlidingWindow::per_second(10));
    ready(&buckets).await;
    server.command(&["SCRIPT", "FLUSH"]);
    let mut lost = pin!(buckets.check("ann"));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        // EVALSHA, then the lock and EVAL, whose answer must not come at once.
        let frozen = Frozen::new(&server);
        let polled = lost.as_mut().poll(&mut context);
        drop(frozen);
        assert!(polled.is_pending(), "{polled:?}");
        sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..3 {
        let _ = windows.check("bob").await.expect("a decision");
    }
}

/// Callers that leave before the deadline. Nor do they shorten the pauses of an open breaker: "one
/// call is sent after 50 ms, each pause twice as long".
#[tokio::test(start_paused = true)]
async fn callers_that_leave_early_do_not_keep_the_breaker_closed() {
    leave_early(0).await;
    leave_early(6).await;
}

async fn leave_early(patient: u64) {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    let before = redis.served().calls;
    // It is frozen: each call arrives in the end, and far too late.
    redis.set_delay(MINUTE);
    for number in 0..patient {
        limiter.check(number).await.expect_err("it is frozen");
    }
    let (began, patience) = (Instant::now(), Duration::from_millis(10));
    for number in 0..200_u32 {
        let left = timeout(patience, limiter.check(u64::from(number))).await;
        assert!(!matches!(left, Ok(Ok(_))), "{left:?}");
        sleep_until(began + (number + 1) * patience).await;
    }
    sleep(2 * MINUTE).await;
    let sent = redis.served().calls - before;
    // Two seconds: five calls, then one after each of 50, 100, 200, 400 and 800 ms.
    assert!((8..=12).contains(&sent), "{sent} of 200 checks were sent");
}

/// A client of the application's own, on which checks time out, keeps its connection, and sends
/// no command of the application again, whatever its own settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_handed_in_survives_a_paused_server_and_its_commands_run_once() {
    let reconnects = ReconnectPolicy::new_exponential(0, 50, 1_000, 2);
    tokio::join!(
        survives_a_paused_server(None),
        survives_a_paused_server(Some(reconnects))
    );
}

async fn survives_a_paused_server(policy: Option<ReconnectPolicy>) {
    let server = RedisServer::start();
    let mut builder = Builder::from_config(Config::from_url(&server.url()).expect("a config"));
    if let Some(policy) = policy {
        builder.set_policy(policy);
    }
    let client = builder.build().expect("a client");
    client.init().await.expect("a connection");
    let store = hasty().client(client.clone()).expect("a store");
    let limiter = denying(store.clone(), TokenBucket::per_second(10));
    ready(&limiter).await;
    let timeouts = || limiter.metrics().store.failures.timeout;
    let before = timeouts();
    let frozen = Frozen::new(&server);
    // Another part of the application waits for an answer of its own.
    let other = {
        let client = client.clone();
        tokio::spawn(async move { client.incr::<i64, _>("orders").await })
    };
    // The eighth failure in a row begins a pause of 400 ms, which would end a connection that the
    // store had made.
    while timeouts() < before + 9 {
        let _ = limiter.check("ann").await;
        sleep(Duration::from_millis(5)).await;
    }
    drop(frozen);
    let other = timeout(DEADLINE, other).await.expect("an answer");
    assert_eq!(other.expect("no panic").expect("a count"), 1);
    let ping = timeout(DEADLINE, client.ping::<String>(None)).await;
    assert_eq!(ping.expect("an answer").expect("a reply"), "PONG");
    ready(&limiter).await;
    assert_eq!(server.command(&["GET", "orders"]), "1");
    store.shutdown().await;
    let ping = client.ping::<String>(None).await;
    assert_eq!(ping.expect("the client stays open"), "PONG");
}

/// Returns the log of the thread that runs the test. Its subscriber is that of all threads: an event that
/// another test meets first would otherwise be off for all, as long as only one thread has a subscriber.
#[cfg(feature = "tracing")]
fn logged_here() -> crate::support::log::Log {
    use crate::support::log::Log;

    thread_local!(static LOG: Log = Log::default());
    static INIT: std::sync::Once = std::sync::Once::new();

    let log = || LOG.with(Log::clone);
    INIT.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        subscriber.with_writer(log).init();
    });
    log()
}

/// "Each line is logged once when the trouble starts."
#[cfg(feature = "tracing")]
#[tokio::test]
async fn a_dead_node_of_a_cluster_is_logged_once() {
    let mut cluster = RedisCluster::start(3, 0);
    let log = logged_here();
    // The client logs lines of its own.
    let own = || -> Vec<String> {
        let mut lines = log.lines();
        lines.retain(|line| line.contains("tower_throttle"));
        lines
    };
    let started = Instant::now();
    let (limiter, well, dead) = loop {
        assert!(started.elapsed() < DEADLINE, "the cluster decides nothing");
        log.clear();
        let store = store_at(&cluster.url());
        let limiter = Limiter::new(store, TokenBucket::per_second(10));
        let on = |node| cluster.callers_on(node, &limiter).next().expect("a caller");
        let (well, dead) = (on(0), on(1));
        let decision = limiter.check(&*well).await;
        let is_by_store = decision.is_ok_and(|decision| decision.source() == Source::Store);
        // Trouble that is logged already is not logged again for five seconds.
        if is_by_store && own().is_empty() {
            break (limiter, well, dead);
        }
    };
    cluster.nodes[1].kill();
    for _ in 0..8 {
        let _ = limiter.check(&*dead).await;
        for _ in 0..15 {
            let _ = limiter.check(&*well).await;
        }
    }
    let is_more = |line: &String| line.contains("still unavailable");
    let (more, shown): (Vec<_>, Vec<_>) = own().into_iter().partition(is_more);
    assert_eq!(shown.len(), 1, "{shown:?} {more:?}");
    // The node may have been silent at first, and then refused connections.
    assert!(more.len() <= 1, "{more:?}");
}

/// One fault: the node that granted the first units refuses their refund (here because of a
/// missing right, as it would when it is out of memory). No caller holds the permit, and its
/// release was not tried again, as it is for a single node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_of_a_failed_check_is_released_in_the_end() {
    let cluster = RedisCluster::start(3, 0);
    // By this clock, no permit expires.
    let clock = Arc::new(ManualClock::new());
    let store = patient().clock(clock);
    let store = store.connect(&cluster.url()).expect("a store");
    // The release is tried again after a tenth of it.
    let lifetime = Duration::from_secs(5);
    let own = || Policy::new("own", Concurrency::new(1).lifetime(lifetime));
    let all = Policy::new("all", FixedWindow::per_day(1)).shared();
    let both = denying_limiter(store.clone(), [own(), all]);
    let only = denying(store, own());
    let (caller, shared) = cluster.caller_apart(&both, 0, 1);
    let first = cluster.owner(cluster.slot(&both.storage_keys(&*caller)[0]));
    eventually_async("a decision", || async { only.peek(&*caller).await.is_ok() }).await;
    let left = async || left(&only, &*caller).await;
    // It uses up the quota of all, and its permit comes back.
    let permit = both.acquire(&*caller, Duration::ZERO).await;
    drop(permit.expect("a decision"));
    eventually_async("the permit", async || left().await == 1).await;

    let frozen = Frozen::new(&cluster.nodes[shared]);
    let asked = {
        let (both, caller) = (both.clone(), caller.clone());
        tokio::spawn(async move { both.acquire(&*caller, Duration::ZERO).await })
    };
    eventually_async("a permit of the first node", async || left().await == 0).await;
    cluster.nodes[first].command(&["ACL", "SETUSER", "default", "-psetex"]);
    drop(frozen);
    let permit = asked.await.expect("no panic");
    assert!(!permit.is_ok_and(|permit| permit.is_allowed()));
    cluster.nodes[first].command(&["ACL", "SETUSER", "default", "+psetex"]);
    eventually_async("the permit, in the end", async || left().await == 1).await;
}

/// Without a server, each check fails before anything is sent. Yet each left a task behind
/// that tried ten times more, for a permit's lifetime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_were_never_sent_leave_no_tasks_behind() {
    for form in ["redis", "redis-cluster"] {
        let port = Port::claim();
        let store = hasty().connect(&format!("{form}://127.0.0.1:{port}/"));
        let limiter = Limiter::new(store.expect("a store"), Concurrency::new(10));
        let before = tasks();
        for number in 0..5_000_u64 {
            let permit = acquire(&limiter, number, Duration::ZERO).await;
            assert!(permit.is_allowed());
        }
        eventually_async("fewer than 100 tasks after 5,000 requests", || async {
            tasks().saturating_sub(before) < 100
        })
        .await;
    }
}

/// One connection goes dead silently (a NAT entry, a load balancer), and all new ones work. Its
/// callers leave early, one at a time or eight at once, or wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_though_callers_leave_early() {
    let early = Duration::from_millis(10);
    tokio::join!(
        dead_connection(early, 1),
        dead_connection(early, 8),
        dead_connection(DEADLINE, 1)
    );
}

async fn dead_connection(patience: Duration, callers: usize) {
    let server = RedisServer::start();
    let relay = Arc::new(Relay::default());
    let port = relay.run(server.port());
    let store = hasty()
        .connect(&format!("redis://127.0.0.1:{port}/"))
        .expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    relay.still.store(1, Ordering::SeqCst);
    eventually_async("another connection", || async {
        let asked = (0..callers as u64).map(|caller| {
            let limiter = limiter.clone();
            tokio::spawn(async move { timeout(patience, limiter.check(caller)).await })
        });
        let mut is_back = false;
        for asked in asked.collect::<Vec<_>>() {
            is_back |= matches!(asked.await, Ok(Ok(Ok(_))));
        }
        sleep(Duration::from_millis(2)).await;
        is_back
    })
    .await;
}

/// One of several connections, while the others answer: too few calls fail for the breaker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_though_others_answer() {
    let server = RedisServer::start();
    let relay = Arc::new(Relay::default());
    let port = relay.run(server.port());
    let store = hasty().connections(4);
    let store = store.timeout(Duration::from_millis(500));
    let store = store.connect(&format!("redis://127.0.0.1:{port}/"));
    let limiter = denying(store.expect("a store"), TokenBucket::per_second(10));
    ready(&limiter).await;
    relay.still.store(1, Ordering::SeqCst);
    eventually_async("answers on all connections", || async {
        for caller in 0..8_u64 {
            if limiter.check(caller).await.is_err() {
                return false;
            }
        }
        true
    })
    .await;
}

/// Passes connections on to a server.
#[derive(Default)]
struct Relay {
    /// The number of the connection that stands still, from 1.
    still: AtomicUsize,
    /// How many times that one was sent something.
    sent: AtomicU64,
}

impl Relay {
    fn run(self: &Arc<Self>, server: u16) -> u16 {
        let relay = Arc::clone(self);
        fake::listen(move |number, mut client| {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server));
            let mut server = server.expect("the server");
            let mut replies = server.try_clone().expect("a second handle");
            let mut back = client.try_clone().expect("a second handle");
            thread::spawn(move || drop(io::copy(&mut replies, &mut back)));
            let is_still = || relay.still.load(Ordering::SeqCst) == number + 1;
            let (mut bytes, mut waiting) = ([0; 4_096], Vec::new());
            while let Ok(read @ 1..) = client.read(&mut bytes) {
                waiting.extend_from_slice(&bytes[..read]);
                if is_still() {
                    relay.sent.fetch_add(1, Ordering::SeqCst);
                } else if server.write_all(&std::mem::take(&mut waiting)).is_err() {
                    return;
                }
            }
        })
    }
}

/// A packet that is lost stops one flow for longer than a check may take. The others take its calls:
/// it gets one in each second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stands_still_is_left_out() {
    let server = RedisServer::start();
    let relay = Arc::new(Relay::default());
    let port = relay.run(server.port());
    let timeout = Duration::from_millis(100);
    let store = hasty().connections(4).timeout(timeout);
    let store = store.connect(&format!("redis://127.0.0.1:{port}"));
    let limiter = denying(store.expect("a store"), TokenBucket::per_second(1_000));
    eventually_async("twenty decisions in a row", || async {
        for caller in 0..20 {
            if limiter.check(caller).await.is_err() {
                return false;
            }
        }
        true
    })
    .await;
    for number in 1..=3 {
        relay.sent.store(0, Ordering::SeqCst);
        relay.still.store(number, Ordering::SeqCst);
        let began = Instant::now();
        for caller in 0..200 {
            let _ = limiter.check(caller).await;
        }
        let most = 3 + 2 * began.elapsed().as_secs();
        let sent = relay.sent.load(Ordering::SeqCst);
        assert!(sent <= most, "{number}: {sent}, of at most {most}");
    }
}
