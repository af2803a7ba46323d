//! How a store on Redis starts and ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fred::{
    interfaces::{ClientLike, KeysInterface},
    types::{Builder, config::Config},
};
use tokio::runtime::{Handle, Runtime};
use tower::ServiceExt;
use tower_throttle::{
    Concurrency, LeakyBucket, Limiter, OnStoreFailure, Permit, Policy, RateLimitLayer, RedisStore,
    Source, TokenBucket,
};

use crate::support::{DEADLINE, RedisServer, eventually_async, left_of};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn patient(server: &RedisServer) -> RedisStore {
    let builder = RedisStore::builder().timeout(DEADLINE);
    builder.connect(&server.url()).expect("a store")
}

fn at_a_time(store: &RedisStore, units: u64) -> Limiter {
    let policy = Policy::new("jobs", Concurrency::new(units));
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    Limiter::new(store.clone(), policy)
}

fn connections(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    // One connection is that of this command.
    clients.lines().count() - 1
}

async fn hold(limiter: &Limiter, units: usize) -> Vec<Permit> {
    let mut held = Vec::new();
    for _ in 0..units {
        let permit = limiter.acquire("ann", Duration::ZERO).await;
        held.push(permit.expect("a decision"));
    }
    assert!(held.iter().all(Permit::is_allowed));
    held
}

#[test]
fn held_units_are_refunded_before_the_process_ends() {
    let server = RedisServer::start();
    for round in 0..20 {
        let process = runtime();
        process.block_on(async {
            let store = patient(&server);
            let limiter = at_a_time(&store, 100);
            drop(hold(&limiter, 100).await);
            store.shutdown().await;
        });
        process.shutdown_background();
        let held = runtime().block_on(async {
            let limiter = at_a_time(&patient(&server), 100);
            limiter.peek("ann").await.expect("a decision")
        });
        let left: Vec<u64> = left_of(&held);
        assert_eq!(left, [100], "round {round}");
    }
}

#[test]
fn waiters_that_left_have_taken_nothing_afterwards() {
    let server = RedisServer::start();
    let queue = || {
        let queue = Policy::new("queue", LeakyBucket::per_hour(60).queue(50));
        queue.on_store_failure(OnStoreFailure::Deny)
    };
    let process = runtime();
    process.block_on(async {
        let store = patient(&server);
        let limiter = Limiter::new(store.clone(), queue());
        // The first turn comes at once, and is used.
        drop(limiter.acquire("ann", Duration::ZERO).await);
        let waiting: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.acquire("ann", DEADLINE * 1_000).await })
            })
            .collect();
        let is_full = || async {
            let peek = limiter.peek("ann").await.expect("a decision");
            !peek.is_allowed()
        };
        eventually_async("a full queue", is_full).await;
        for task in &waiting {
            task.abort();
        }
        for task in waiting {
            assert!(task.await.is_err_and(|error| error.is_cancelled()));
        }
        store.shutdown().await;
    });
    drop(process);
    runtime().block_on(async {
        let limiter = Limiter::new(patient(&server), queue());
        let peek = limiter.peek("ann").await.expect("a decision");
        let left: Vec<u64> = left_of(&peek);
        assert_eq!(left, [50]);
    });
}

#[tokio::test]
async fn after_shutdown_the_fallback_decides_and_no_connection_is_left() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(DEADLINE)
        .connections(3)
        .connect(&server.url())
        .expect("a store");
    let deciding = Limiter::new(store.clone(), TokenBucket::per_day(5));
    let denying = Policy::new("strict", TokenBucket::per_day(5));
    let denying = denying.on_store_failure(OnStoreFailure::Deny);
    let denying = Limiter::new(store.clone(), denying);
    for _ in 0..3 {
        assert!(denying.check("ann").await.expect("a decision").is_allowed());
    }
    assert!(connections(&server) >= 3);

    store.shutdown().await;
    let decision = deciding.check("ann").await.expect("a decision");
    assert_eq!(decision.source(), Source::Local);
    let asked = Instant::now();
    let error = denying.check("ann").await.expect_err("no store");
    assert!(error.is_unavailable());
    assert!(asked.elapsed() < DEADLINE / 2);
    eventually_async("closed connections", || async { connections(&server) == 0 }).await;
    // A second shutdown, on a clone, does nothing.
    store.clone().shutdown().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_dead_server() {
    let mut server = RedisServer::start();
    let store = patient(&server);
    let held = hold(&at_a_time(&store, 10), 10).await;
    server.kill();
    drop(held);
    let asked = Instant::now();
    store.shutdown().await;
    assert!(asked.elapsed() < DEADLINE / 2, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_client_that_was_handed_in_stays_open() {
    let server = RedisServer::start();
    let config = Config::from_url(&server.url()).expect("a URL");
    let client = Builder::from_config(config).build().expect("a client");
    client.init().await.expect("a connection");
    let builder = RedisStore::builder().timeout(DEADLINE);
    let store = builder.client(client.clone()).expect("a store");
    let limiter = Limiter::new(store.clone(), TokenBucket::per_day(5));
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(decision.source(), Source::Store);
    store.shutdown().await;
    let (): () = client
        .set("still", "here", None, None, false)
        .await
        .expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_last_handle_every_task_ends() {
    let server = RedisServer::start();
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..10 {
        let store = Arc::new(patient(&server));
        let limiter = Limiter::new(Arc::clone(&store), TokenBucket::per_day(1_000));
        let checks: Vec<_> = (0..100)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check("ann").await })
            })
            .collect();
        for check in checks {
            assert!(check.await.expect("no panic").is_ok());
        }
        drop(hold(&at_a_time(&store, 10), 10).await);
    }
    eventually_async("the end of all tasks", || async {
        Handle::current().metrics().num_alive_tasks() <= before
    })
    .await;
    eventually_async("closed connections", || async { connections(&server) == 0 }).await;
}

#[test]
fn when_the_runtime_of_a_store_ends_checks_of_another_fail_in_time() {
    let server = RedisServer::start();
    let first = runtime();
    let (deciding, denying) = first.block_on(async {
        let store = RedisStore::connect(&server.url()).expect("a store");
        let deciding = Limiter::new(store.clone(), TokenBucket::per_day(5));
        let policy = Policy::new("strict", TokenBucket::per_day(5));
        let denying = Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny));
        let _ = denying.check("ann").await;
        (deciding, denying)
    });
    drop(first);
    runtime().block_on(async {
        for _ in 0..20 {
            let asked = Instant::now();
            let error = denying.check("ann").await.expect_err("no store");
            assert!(error.is_unavailable() || error.is_timeout(), "{error:?}");
            let decision = deciding.check("ann").await.expect("a decision");
            assert_eq!(decision.source(), Source::Local);
            assert!(asked.elapsed() < DEADLINE, "{:?}", asked.elapsed());
        }
    });
}

#[test]
fn outside_a_runtime_building_is_an_error() {
    for url in [
        "redis://127.0.0.1/",
        "redis-cluster://127.0.0.1/",
        "redis-sentinel://127.0.0.1/?sentinelServiceName=main",
    ] {
        let mistake = RedisStore::connect(url).expect_err("no runtime");
        assert_eq!(mistake.code(), "no-runtime");
        // Its connections and its workers need timers.
        let runtime = without_timers();
        let _inside = runtime.enter();
        let mistake = RedisStore::connect(url).expect_err("no timers");
        assert_eq!(mistake.code(), "no-runtime");
    }
}

/// Waits on a thread outside of any runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn outside_of_a_runtime_checks_use_that_of_the_store() {
    let server = RedisServer::start();
    let cluster = crate::support::cluster::RedisCluster::start(3, 0);
    let runtime = runtime();
    for url in [server.url(), cluster.url()] {
        let (store, limiter) = runtime.block_on(async {
            let store = RedisStore::builder().timeout(DEADLINE);
            let store = store.connect(&url).expect("a store");
            let policy = Policy::new("api", TokenBucket::per_hour(2));
            let policy = policy.on_store_failure(OnStoreFailure::Deny);
            (store.clone(), Limiter::new(store, policy))
        });
        let admitted = (0..4).filter(|_| {
            let decision = block_on(limiter.check("ann"));
            decision.expect("a decision").is_allowed()
        });
        assert_eq!(admitted.count(), 2);
        block_on(limiter.reset("ann")).expect("a reset");
        block_on(store.health_check()).expect("it is ready");
        let held = block_on(at_a_time(&store, 1).acquire("ann", Duration::ZERO));
        drop(held.expect("a decision"));
        block_on(store.shutdown());
        block_on(limiter.check("ann")).expect_err("it was shut down");
    }
}

fn without_timers() -> Runtime {
    let builder = tokio::runtime::Builder::new_current_thread().build();
    builder.expect("a runtime")
}

#[test]
fn callers_in_a_runtime_without_timers_use_those_of_the_store() {
    let server = RedisServer::start();
    let cluster = crate::support::cluster::RedisCluster::start(3, 0);
    let (runtime, without) = (runtime(), without_timers());
    for url in [server.url(), cluster.url()] {
        let (store, limiter, leasing) = runtime.block_on(async {
            let store = RedisStore::builder().timeout(DEADLINE);
            let store = store.connect(&url).expect("a store");
            let of = |name, quota| Policy::new(name, quota).on_store_failure(OnStoreFailure::Deny);
            let limiter = Limiter::new(store.clone(), of("api", TokenBucket::per_hour(2)));
            let leasing = of("leases", TokenBucket::per_hour(1_000)).lease();
            (store.clone(), limiter, Limiter::new(store, leasing))
        });
        let inner = tower::service_fn(async |_: http::Request<String>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        });
        let layer = RateLimitLayer::builder()
            .store(store.clone())
            .policy(Policy::new("layer", TokenBucket::per_hour(1)).shared())
            .on_store_failure(OnStoreFailure::Deny)
            .build()
            .expect("a layer");
        let service = tower::Layer::layer(&layer, inner);
        without.block_on(async {
            let mut admitted = 0;
            for _ in 0..4 {
                let decision = limiter.check("ann").await.expect("a decision");
                admitted += u32::from(decision.is_allowed());
            }
            assert_eq!(admitted, 2);
            limiter.credit("ann", 1).await.expect("a refund");
            let _ = limiter.debit("ann", 1).await.expect("a debit");
            let _ = limiter.peek("ann").await.expect("a decision");
            limiter.reset("ann").await.expect("a reset");
            for _ in 0..10 {
                let decision = leasing.check("ann").await.expect("a decision");
                assert!(decision.is_allowed());
            }
            leasing.reset("ann").await.expect("a reset");
            store.health_check().await.expect("it is ready");
            for status in [200, 429] {
                let request = http::Request::new(String::new());
                let response = service.clone().oneshot(request).await;
                assert_eq!(response.expect("infallible").status(), status);
            }
            store.shutdown().await;
            limiter.check("ann").await.expect_err("it was shut down");
        });
    }
}

/// Nothing drives the runtime's timers, so the check must not wait for them.
#[test]
fn outside_of_a_runtime_a_store_of_a_single_thread_fails() {
    let server = RedisServer::start();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let limiter = runtime.block_on(async {
        let policy = Policy::new("api", TokenBucket::per_hour(2));
        let policy = policy.on_store_failure(OnStoreFailure::Deny);
        Limiter::new(RedisStore::connect(&server.url()).expect("a store"), policy)
    });
    let without = without_timers();
    for error in [
        block_on(limiter.check("ann")),
        without.block_on(limiter.check("ann")),
    ] {
        let error = error.expect_err("no runtime with timers");
        assert!(error.is_unavailable(), "{error:?}");
    }
    assert!(block_on(limiter.reset("ann")).is_err());
    assert!(without.block_on(limiter.reset("ann")).is_err());
}
