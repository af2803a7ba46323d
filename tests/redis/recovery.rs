//! What once kept a store from recovering, or leaked: callers that leave, errors inside the
//! script, clients of others, slots that disagree.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use crate::support::{RedisServer, cluster::RedisCluster, eventually_async};
use tokio::time::{sleep, timeout};
use tower_throttle::{
    FixedWindow, Limiter, OnStoreFailure, Policy, RedisStore, SlidingWindow, Source, TokenBucket,
};

fn denying(store: RedisStore, policy: impl Into<Policy>) -> Limiter {
    Limiter::new(store, policy.into().on_store_failure(OnStoreFailure::Deny))
}

/// Returns a number in `INFO`.
fn info(server: &RedisServer, section: &str, name: &str) -> u64 {
    let shown = server.command(&["INFO", section]);
    let line = shown.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_default();
    let rest = line[name.len().min(line.len())..].trim_start_matches([':', '=']);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn evalshas(server: &RedisServer) -> u64 {
    info(server, "commandstats", "cmdstat_evalsha:calls")
}

fn signal(server: &RedisServer, signal: &str) {
    let pid = server.pid().to_string();
    let status = std::process::Command::new("kill")
        .args([signal, &pid])
        .status();
    assert!(status.expect("kill").success());
}

async fn ready(limiter: &Limiter) {
    eventually_async("a decision", || async {
        limiter.peek("ready").await.is_ok()
    })
    .await;
}

/// A store that was dropped while it connected left its connection and a task behind
/// indefinitely.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_are_dropped_while_they_connect_leave_nothing_behind() {
    let server = RedisServer::start();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for number in 0..60_u64 {
        let store = RedisStore::connect(&server.url()).expect("a store");
        sleep(Duration::from_micros(number * 50)).await;
        drop(store);
    }
    // One connection is that of this command.
    eventually_async("no connection and no task of the stores", || async {
        let clients = info(&server, "clients", "connected_clients");
        (clients, tasks()) == (1, before)
    })
    .await;
}

/// The same for `shutdown`, which promises to close them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_while_it_connects_closes_the_connection() {
    let server = RedisServer::start();
    signal(&server, "-STOP");
    let store = RedisStore::connect(&server.url()).expect("a store");
    sleep(Duration::from_millis(200)).await;
    store.shutdown().await;
    drop(store);
    signal(&server, "-CONT");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(info(&server, "clients", "connected_clients"), 1);
}

/// "`OOM`: failure; the breaker counts it".
#[tokio::test]
async fn the_breaker_counts_writes_that_redis_refuses() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let store = RedisStore::builder().timeout(crate::support::DEADLINE);
    let store = store.connect(&server.url()).expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = evalshas(&server);
    for number in 0..500_u64 {
        let error = limiter.check(number).await.expect_err("no memory");
        assert!(error.is_refused() || error.is_unavailable(), "{error:?}");
    }
    let sent = evalshas(&server) - before;
    assert!(sent < 50, "{sent} of 500 were sent");
}

/// "`READONLY`: failure; when a pause of 400 ms did not help, connect anew".
#[tokio::test]
async fn a_primary_that_became_a_replica_is_connected_to_anew() {
    let server = RedisServer::start();
    let store = RedisStore::builder().timeout(crate::support::DEADLINE);
    let store = store.connect(&server.url()).expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    let unused = crate::support::port::Port::claim();
    let unused = &unused.to_string();
    server.command(&["REPLICAOF", "127.0.0.1", unused]);
    let id = || {
        let list = server.command(&["CLIENT", "LIST"]);
        // Not the connection of this command, whichever command the store sent last.
        let ours = list.lines().find(|line| !line.contains("cmd=client"));
        ours.and_then(|line| line.split(' ').next().map(str::to_owned))
    };
    let mut ids = std::collections::BTreeSet::new();
    let before = evalshas(&server);
    let started = Instant::now();
    let mut number = 0_u64;
    while started.elapsed() < Duration::from_secs(5) {
        number += 1;
        let error = limiter.check(number).await.expect_err("it is a replica");
        if number == 1 {
            println!("{error:?}");
        }
        if number % 50 == 0 {
            ids.extend(id());
        }
        sleep(Duration::from_millis(2)).await;
    }
    let sent = evalshas(&server) - before;
    assert!(
        ids.len() > 1,
        "connections seen: {ids:?}; {sent} of {number} checks were sent"
    );
}

/// A caller that stops polling its check (the branch of a `select!` that lost, an element of a
/// `FuturesUnordered`) held the lock of script loading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_polling_keeps_no_other_from_loading_scripts() {
    let server = RedisServer::start();
    let store = RedisStore::builder().timeout(Duration::from_millis(500));
    let store = store.connect(&server.url()).expect("a store");
    let buckets = denying(store.clone(), TokenBucket::per_second(10));
    let windows = denying(store, SlidingWindow::per_second(10));
    eventually_async("a connection", || async {
        let logs = denying(
            RedisStore::connect(&server.url()).expect("a store"),
            FixedWindow::per_second(1),
        );
        logs.peek("x").await.is_ok()
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    let mut lost = pin!(buckets.check("ann"));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        // EVALSHA, then the lock and EVAL, whose answer must not come at once.
        signal(&server, "-STOP");
        let polled = lost.as_mut().poll(&mut context);
        signal(&server, "-CONT");
        assert!(polled.is_pending(), "{polled:?}");
        sleep(Duration::from_millis(200)).await;
    }
    let mut errors = Vec::new();
    for _ in 0..10 {
        errors.extend(windows.check("bob").await.err());
        sleep(Duration::from_millis(100)).await;
    }
    assert!(
        errors.is_empty(),
        "{} of 10 failed: {:?}",
        errors.len(),
        errors[0]
    );
}

/// Callers that leave before the deadline.
#[tokio::test]
async fn callers_that_leave_early_do_not_keep_the_breaker_closed() {
    leave_early(0).await;
}

/// Callers that leave do not shorten the pauses of an open breaker either: "one call is sent
/// after 50 ms, each pause twice as long".
#[tokio::test]
async fn callers_that_leave_early_do_not_end_its_pauses() {
    leave_early(6).await;
}

async fn leave_early(patient: u64) {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    let _ = limiter.check("ann").await;
    let before = evalshas(&server);
    signal(&server, "-STOP");
    for number in 0..patient {
        let _ = limiter.check(number).await;
    }
    for number in 0..200_u64 {
        let asked = Instant::now();
        let _ = timeout(Duration::from_millis(10), limiter.check(number)).await;
        sleep(Duration::from_millis(10).saturating_sub(asked.elapsed())).await;
    }
    signal(&server, "-CONT");
    sleep(Duration::from_secs(1)).await;
    let sent = evalshas(&server) - before;
    // Two seconds: five calls, then one after each of 50, 100, 200, 400 and 800 ms.
    assert!(
        sent <= 15,
        "{sent} of 200 checks were sent to a frozen server"
    );
}

/// A client of the user's own would have survived this: its connection never broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_handed_in_survives_a_paused_server() {
    lives_through(true).await;
}

/// The same without checks of the store: the client survives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_own_client_survives_it() {
    lives_through(false).await;
}

async fn lives_through(with_checks: bool) {
    use fred::prelude::*;
    let server = RedisServer::start();
    let config = Config::from_url(&server.url()).expect("a config");
    let client = Builder::from_config(config).build().expect("a client");
    let _task = client.init().await.expect("a connection");
    let store = RedisStore::builder()
        .client(client.clone())
        .expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    signal(&server, "-STOP");
    let started = Instant::now();
    // Another part of the application waits for an answer of its own.
    let other = {
        let client = client.clone();
        tokio::spawn(async move { client.ping::<String>(None).await })
    };
    while started.elapsed() < Duration::from_secs(4) {
        if with_checks {
            let _ = limiter.check("ann").await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    signal(&server, "-CONT");
    sleep(Duration::from_secs(3)).await;
    let ping = timeout(Duration::from_secs(2), client.ping::<String>(None)).await;
    let other = timeout(Duration::from_secs(2), other).await;
    let check = limiter.check("ann").await;
    assert!(
        matches!((&ping, &check, &other), (Ok(Ok(_)), Ok(_), Ok(Ok(Ok(_))))),
        "ping {ping:?}, check {:?}, the other {other:?}",
        check.is_ok()
    );
}

/// "Each line is logged once when the trouble starts."
#[cfg(feature = "tracing")]
#[tokio::test]
async fn a_dead_node_of_a_cluster_is_logged_once() {
    use std::{
        io,
        sync::{Arc, Mutex},
    };
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut cluster = RedisCluster::start(3, 0);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let store = RedisStore::connect(&cluster.url()).expect("a store");
    let limiter = Limiter::new(store, TokenBucket::per_second(10));
    let on = |node: usize| {
        (0..)
            .map(|number: u64| format!("caller-{number}"))
            .find(|caller| {
                let slot = cluster.slot(&limiter.storage_keys(&**caller)[0]);
                cluster.slots_of(node).any(|range| range.contains(&slot))
            })
            .unwrap()
    };
    let (well, dead) = (on(0), on(1));
    eventually_async("a decision of the cluster", || async {
        let decision = limiter.check(&*well).await;
        decision.is_ok_and(|decision| decision.source() == Source::Store)
    })
    .await;
    cluster.nodes[1].kill();
    log.0.lock().unwrap().clear();
    for number in 0..120 {
        if number % 15 == 0 {
            let _ = limiter.check(&*dead).await;
        }
        let _ = limiter.check(&*well).await;
        sleep(Duration::from_millis(100)).await;
    }
    let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let is_more = |line: &&str| line.contains("still unavailable");
    let (more, shown): (Vec<_>, Vec<_>) = lines.lines().partition(is_more);
    assert_eq!(shown.len(), 1, "{lines}");
    // The node may have been silent at first, and then refused connections.
    assert!(more.len() <= 1, "{lines}");
}

/// Returns a limiter of both policies, and one of the first alone, without fallback.
fn both_and_only(store: &RedisStore, own: &Policy, all: Policy) -> [Limiter; 2] {
    let builder = || {
        let builder = Limiter::builder().store(store.clone());
        builder
            .on_store_failure(OnStoreFailure::Deny)
            .policy(own.clone())
    };
    [builder().policy(all), builder()].map(|builder| builder.build().expect("a limiter"))
}

/// Returns a caller whose own bucket is on another node than the shared one, and the index of
/// that node.
fn apart(cluster: &RedisCluster, both: &Limiter) -> (String, usize) {
    let node_of =
        |caller: &str, place: usize| cluster.owner(cluster.slot(&both.storage_keys(caller)[place]));
    let shared = node_of("", 1);
    let mut callers = (0..).map(|number: u64| format!("caller-{number}"));
    let caller = callers.find(|caller| node_of(caller, 0) != shared);
    (caller.expect("a caller"), shared)
}

/// One fault: the node that granted the first units refuses their refund (here because of a
/// missing right, as it would when it is out of memory). No caller holds the permit, and its
/// release was not tried again, as it is for a single node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_of_a_failed_check_is_released_in_the_end() {
    use tower_throttle::Concurrency;
    let cluster = RedisCluster::start(3, 0);
    let store = RedisStore::builder().timeout(Duration::from_secs(2));
    let store = store.connect(&cluster.url()).expect("a store");
    let lifetime = Duration::from_secs(20);
    let own = || Policy::new("own", Concurrency::new(1).lifetime(lifetime));
    let all = Policy::new("all", FixedWindow::per_day(1)).shared();
    let [both, only] = both_and_only(&store, &own(), all);
    let (caller, shared) = apart(&cluster, &both);
    let first = cluster.owner(cluster.slot(&both.storage_keys(&*caller)[0]));
    eventually_async("a decision", || async { only.peek(&*caller).await.is_ok() }).await;
    // No permit of the second node is held.
    drop(
        both.acquire(&*caller, Duration::ZERO)
            .await
            .expect("a decision"),
    );
    eventually_async("the permit", || async {
        let peek = only.peek(&*caller).await.expect("a decision");
        peek.policies().all(|policy| policy.remaining() == 1)
    })
    .await;

    signal(&cluster.nodes[shared], "-STOP");
    let asked = {
        let (both, caller) = (both.clone(), caller.clone());
        tokio::spawn(async move { both.acquire(&*caller, Duration::ZERO).await.map(drop) })
    };
    sleep(Duration::from_millis(300)).await;
    cluster.nodes[first].command(&["ACL", "SETUSER", "default", "-psetex", "-incrby"]);
    signal(&cluster.nodes[shared], "-CONT");
    let answer = asked.await.expect("no panic");
    cluster.nodes[first].command(&["ACL", "SETUSER", "default", "+psetex", "+incrby"]);
    // The release is tried again after a tenth of the lifetime.
    sleep(lifetime / 4).await;
    let peek = only.peek(&*caller).await.expect("a decision");
    let left: Vec<_> = peek.policies().map(|policy| policy.remaining()).collect();
    assert_eq!(left, [1], "the answer was {answer:?}");
}

/// Without a cluster, each check fails before anything is sent. Yet each left a task behind
/// that tried ten times more, for a permit's lifetime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_were_never_sent_leave_no_tasks_behind() {
    use tower_throttle::Concurrency;
    let port = crate::support::port::Port::claim();
    let store = RedisStore::connect(&format!("redis-cluster://127.0.0.1:{port}/"));
    let limiter = Limiter::new(store.expect("a store"), Concurrency::new(10));
    sleep(Duration::from_secs(1)).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for number in 0..5_000_u64 {
        let permit = limiter
            .acquire(number, Duration::ZERO)
            .await
            .expect("local");
        assert!(permit.is_allowed());
        drop(permit);
    }
    eventually_async("fewer than 100 tasks after 5,000 requests", || async {
        tasks().saturating_sub(before) < 100
    })
    .await;
}

/// For one node that is down, the breaker bounds the tasks (68 in 5 s).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_on_one_node() {
    use tower_throttle::Concurrency;
    let port = crate::support::port::Port::claim();
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{port}/"));
    let limiter = Limiter::new(store.expect("a store"), Concurrency::new(10));
    sleep(Duration::from_secs(1)).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let started = Instant::now();
    let mut number = 0_u64;
    while started.elapsed() < Duration::from_secs(5) {
        number += 1;
        let permit = limiter
            .acquire(number, Duration::ZERO)
            .await
            .expect("local");
        drop(permit);
        sleep(Duration::from_millis(1)).await;
    }
    let left = tasks().saturating_sub(before);
    assert!(
        left < 200,
        "{left} tasks after {number} requests that have ended"
    );
}

/// A node of a cluster that claims slots, and redirects them to itself.
#[tokio::test]
async fn nodes_that_disagree_delay_no_check_beyond_its_deadline() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    let shown = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let mut answer = String::new();
                    let mut words = shown.split("\r\n");
                    while let Some(word) = words.next() {
                        if !word.starts_with('*') {
                            continue;
                        }
                        words.next();
                        match words.next().unwrap_or_default() {
                            "CLUSTER" => answer.push_str(&format!(
                                "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"
                            )),
                            "EVALSHA" => {
                                let key = words.nth(5).unwrap_or_default();
                                let slot = fred::util::redis_keyslot(key.as_bytes());
                                answer.push_str(&format!("-MOVED {slot} 127.0.0.1:{port}\r\n"));
                            }
                            _ => answer.push_str("+OK\r\n"),
                        }
                    }
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let store = RedisStore::builder().timeout(Duration::from_millis(16));
    let store = store
        .connect(&format!("redis-cluster://127.0.0.1:{port}/"))
        .expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    sleep(Duration::from_secs(1)).await;
    let mut fastest = Duration::MAX;
    let mut error = None;
    for _ in 0..20 {
        let asked = Instant::now();
        error = limiter.check("ann").await.err();
        fastest = fastest.min(asked.elapsed());
    }
    // The pauses between all redirections take 25 ms.
    assert!(
        fastest < Duration::from_millis(22),
        "{fastest:?}: {error:?}"
    );
}

/// Commands of the application's own, on the client that it handed in, were cut off and sent
/// again by its own settings, although the server was only slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_application_run_once() {
    assert_eq!(increments(true).await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_commands_of_the_application_run_once_without_checks() {
    assert_eq!(increments(false).await, "1");
}

async fn increments(with_checks: bool) -> String {
    use fred::prelude::*;
    let server = RedisServer::start();
    let config = Config::from_url(&server.url()).expect("a config");
    let client = Builder::from_config(config)
        .set_policy(ReconnectPolicy::new_exponential(0, 50, 1_000, 2))
        .build()
        .expect("a client");
    let _task = client.init().await.expect("a connection");
    let store = RedisStore::builder()
        .client(client.clone())
        .expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    signal(&server, "-STOP");
    let started = Instant::now();
    let other = {
        let client = client.clone();
        tokio::spawn(async move { client.incr::<i64, _>("orders").await })
    };
    while started.elapsed() < Duration::from_secs(4) {
        if with_checks {
            let _ = limiter.check("ann").await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    signal(&server, "-CONT");
    let answer = timeout(Duration::from_secs(5), other).await;
    println!("{answer:?}");
    sleep(Duration::from_secs(1)).await;
    server.command(&["GET", "orders"])
}

/// One connection goes dead silently (a NAT entry, a load balancer), and all new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_though_callers_leave_early() {
    let after = dead_connection(Duration::from_millis(10), 1).await;
    assert!(after < Duration::from_secs(13), "it took {after:?}");
}

/// The same with eight concurrent callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_though_many_callers_leave_early() {
    let after = dead_connection(Duration::from_millis(10), 8).await;
    assert!(after < Duration::from_secs(13), "it took {after:?}");
}

/// With live callers the breaker replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_dead_connection_is_replaced() {
    let after = dead_connection(Duration::from_millis(500), 1).await;
    assert!(after < Duration::from_secs(13), "it took {after:?}");
}

/// One of several connections, while the others answer: too few calls fail for the breaker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_though_others_answer() {
    let server = RedisServer::start();
    let (port, first_is_dead) = first_may_die(&server);
    let store = RedisStore::builder().connections(4);
    let store = store.connect(&format!("redis://127.0.0.1:{port}/"));
    let limiter = denying(store.expect("a store"), TokenBucket::per_second(10));
    ready(&limiter).await;
    first_is_dead.store(true, Ordering::Relaxed);
    let died = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < 8 {
        let caller = died.elapsed().as_nanos() as u64;
        let is_answered = limiter.check(caller).await.is_ok();
        in_a_row = if is_answered { in_a_row + 1 } else { 0 };
        let after = died.elapsed();
        assert!(after < Duration::from_secs(16), "{after:?}");
    }
}

async fn dead_connection(patience: Duration, callers: usize) -> Duration {
    let server = RedisServer::start();
    let (port, first_is_dead) = first_may_die(&server);
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{port}/")).expect("a store");
    let limiter = denying(store, TokenBucket::per_second(10));
    ready(&limiter).await;
    first_is_dead.store(true, Ordering::Relaxed);
    let died = Instant::now();
    while died.elapsed() < Duration::from_secs(40) {
        let number = died.elapsed().as_nanos() as u64;
        let tasks: Vec<_> = (0..callers as u64)
            .map(|caller| {
                let limiter = limiter.clone();
                tokio::spawn(async move { timeout(patience, limiter.check(number + caller)).await })
            })
            .collect();
        let mut is_back = false;
        for task in tasks {
            is_back |= matches!(task.await, Ok(Ok(Ok(_))));
        }
        if is_back {
            break;
        }
        sleep(Duration::from_millis(2)).await;
    }
    died.elapsed()
}

/// A proxy to this server whose first connection goes dead on command.
fn first_may_die(server: &RedisServer) -> (u16, Arc<AtomicBool>) {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };
    fn copy(mut from: TcpStream, mut to: TcpStream, is_dead: Arc<AtomicBool>) {
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if !is_dead.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
        });
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let first_is_dead = Arc::new(AtomicBool::new(false));
    let (dead, target) = (Arc::clone(&first_is_dead), server.port());
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let client = client.expect("a connection");
            let redis = TcpStream::connect(("127.0.0.1", target)).expect("Redis");
            let dead = if number == 0 {
                Arc::clone(&dead)
            } else {
                Arc::default()
            };
            copy(
                client.try_clone().unwrap(),
                redis.try_clone().unwrap(),
                Arc::clone(&dead),
            );
            copy(redis, client, dead);
        }
    });
    (port, first_is_dead)
}
