//! How a store on Redis starts and ends.

use std::time::Instant;

use tokio::runtime::{Handle, Runtime};

use crate::prelude::*;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn at_a_time(store: &RedisStore, units: u64) -> Limiter {
    denying(store.clone(), Policy::new("jobs", Concurrency::new(units)))
}

fn connections(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    // One connection is that of this command.
    clients.lines().count() - 1
}

#[test]
fn held_units_are_refunded_before_the_process_ends() {
    let server = RedisServer::start();
    for round in 0..20 {
        let process = runtime();
        process.block_on(async {
            let store = store_at(&server.url());
            let limiter = at_a_time(&store, 100);
            drop(hold(&limiter, 100).await);
            store.shutdown().await;
        });
        process.shutdown_background();
        let held = runtime().block_on(async {
            let limiter = at_a_time(&store_at(&server.url()), 100);
            limiter.peek("ann").await.expect("a decision")
        });
        let left: Vec<u64> = left_of(&held);
        assert_eq!(left, [100], "round {round}");
    }
}

#[tokio::test]
async fn after_shutdown_the_fallback_decides_and_no_connection_is_left() {
    let server = RedisServer::start();
    let store = patient().connections(3).connect(&server.url());
    let store = store.expect("a store");
    let deciding = Limiter::new(store.clone(), TokenBucket::per_day(5));
    let strict = Policy::new("strict", TokenBucket::per_day(5));
    let denying = denying(store.clone(), strict);
    // The last denial is cached.
    for number in 0..7 {
        let decision = denying.check("ann").await.expect("a decision");
        assert_eq!(decision.is_allowed(), number < 5);
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
    let store = store_at(&server.url());
    let held = hold(&at_a_time(&store, 10), 10).await;
    server.kill();
    drop(held);
    let asked = Instant::now();
    store.shutdown().await;
    assert!(asked.elapsed() < DEADLINE / 2, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_last_handle_every_task_ends() {
    let server = RedisServer::start();
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..10 {
        let store = Arc::new(store_at(&server.url()));
        let limiter = Limiter::new(Arc::clone(&store), TokenBucket::per_day(1_000));
        let checks = (0..100).map(|_| {
            let limiter = limiter.clone();
            async move { limiter.check("ann").await }
        });
        let checks = JoinSet::from_iter(checks).join_all().await;
        assert!(checks.iter().all(Result::is_ok));
        // Those of the store before it may not be back yet.
        drop(hold(&at_a_time(&store, 100), 10).await);
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
        let store = hasty().connect(&server.url()).expect("a store");
        let deciding = Limiter::new(store.clone(), TokenBucket::per_day(5));
        let denying = denying(store, Policy::new("strict", TokenBucket::per_day(5)));
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
        let mistake = hasty().connect(url).expect_err("no runtime");
        assert_eq!(mistake.code(), "no-runtime");
        // Its connections and its workers need timers.
        let runtime = without_timers();
        let _inside = runtime.enter();
        let mistake = hasty().connect(url).expect_err("no timers");
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
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn without_timers() -> Runtime {
    let builder = tokio::runtime::Builder::new_current_thread().build();
    builder.expect("a runtime")
}

/// Outside of any runtime, and in one without timers.
#[test]
fn callers_without_timers_use_those_of_the_store() {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start(3, 0));
    let (runtime, without) = (runtime(), without_timers());
    for (url, is_outside) in [
        (server.url(), true),
        (server.url(), false),
        (cluster.url(), true),
        (cluster.url(), false),
    ] {
        let (store, limiter, leasing) = runtime.block_on(async {
            let prefix = if is_outside { "outside" } else { "inside" };
            let store = patient().prefix(prefix).connect(&url).expect("a store");
            let limiter = denying(store.clone(), Policy::new("api", TokenBucket::per_hour(2)));
            let leasing = Policy::new("leases", TokenBucket::per_hour(1_000)).lease();
            (store.clone(), limiter, denying(store, leasing))
        });
        let layer = RateLimitLayer::builder()
            .store(store.clone())
            .policy(Policy::new("layer", TokenBucket::per_hour(1)).shared())
            .on_store_failure(OnStoreFailure::Deny)
            .build()
            .expect("a layer");
        let service = layer.layer(tower::service_fn(hello));
        let all = async {
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
            drop(hold(&at_a_time(&store, 1), 1).await);
            for status in [200, 429] {
                let response = service.clone().oneshot(plain()).await;
                assert_eq!(response.expect("infallible").status(), status);
            }
            store.shutdown().await;
            limiter.check("ann").await.expect_err("it was shut down");
        };
        match is_outside {
            true => block_on(all),
            false => without.block_on(all),
        }
    }
}

/// Nothing drives the runtime's timers, so the check must not wait for them.
#[test]
fn outside_of_a_runtime_a_store_of_a_single_thread_fails() {
    let server = RedisServer::start();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let limiter = runtime.block_on(async {
        let store = hasty().connect(&server.url()).expect("a store");
        denying(store, TokenBucket::per_hour(2))
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
