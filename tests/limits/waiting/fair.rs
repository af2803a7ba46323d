//! Callers are served in the order in which they come, under every algorithm.

use std::{cell::RefCell, rc::Rc};

use http::{Request, StatusCode};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::LocalSet,
    time::{Instant, sleep},
};
use tower::service_fn;

use crate::support::{
    pool::{Call, Calls, of_limiter, pool},
    prelude::*,
};

const LONG: Duration = Duration::from_secs(3_600);

/// Every algorithm under which callers wait.
fn policies() -> Vec<Policy> {
    let bucket = TokenBucket::per_second(100).burst(5);
    let held = Policy::new("held", bucket).hold_for(LONG);
    vec![
        Policy::new("permit", Concurrency::new(3)),
        Policy::new("bucket", bucket),
        Policy::new("queue", LeakyBucket::per_second(100).queue(1_000)),
        Policy::new("leaky", LeakyBucket::per_second(100).capacity(5)),
        Policy::new(
            "at once",
            TokenBucket::per_second(10).burst(10).refill_at_once(),
        ),
        Policy::new("fixed", FixedWindow::per_second(10)),
        Policy::new("aligned", FixedWindow::per_second(10).aligned()),
        Policy::new("sliding", SlidingWindow::per_second(10)),
        Policy::new("log", SlidingLog::per_second(10)),
        held,
    ]
}

fn assert_even(calls: &Calls, workers: usize, of: &impl std::fmt::Debug) {
    for worker in 0..workers {
        let served = calls.of(worker);
        assert!((45..=55).contains(&served), "{of:?}: {served} of {worker}");
    }
}

/// Each worker of eight gets as many calls, also those that ask for more units.
#[tokio::test(start_paused = true)]
async fn workers_of_a_pool_are_served_in_turn() {
    for policy in policies() {
        for units in [[1; 8], [1, 1, 1, 2, 1, 1, 1, 1], [3, 1, 1, 1, 2, 1, 1, 1]] {
            for work in [1, 2, 37] {
                let of = (&policy, units, work);
                let limiter = Limiter::new(paused_store(), policy.clone());
                let calls = pool(&units, ms(work), of_limiter(&limiter)).await;
                calls.assert_in_order(&of);
                assert_even(&calls, units.len(), &of);
            }
        }
    }
}

/// Equal workers a millisecond away from the server. Requests in flight may pass each other.
#[cfg(all(feature = "redis", feature = "testing"))]
#[tokio::test(start_paused = true)]
async fn workers_of_a_pool_are_served_in_turn_over_a_network() {
    use tower_throttle::{RedisStore, testing::SimulatedRedis};

    for policy in policies() {
        let redis = SimulatedRedis::new();
        redis.set_delay(ms(1));
        let store = RedisStore::builder().simulated(&redis).unwrap();
        let limiter = Limiter::new(store, policy.clone());
        let calls = pool(&[1; 8], ms(7), of_limiter(&limiter)).await;
        assert_even(&calls, 8, &policy);
    }
}

/// Whatever threads do at the same time, no waiter is lost, and no lock blocks another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_on_four_threads_are_all_served() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        Policy::new("permit", Concurrency::new(1)),
    );
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let limiter = limiter.clone();
        workers.spawn(async move {
            for _ in 0..500 {
                assert!(acquire(&limiter, "ann", LONG).await.is_allowed());
            }
        });
    }
    workers.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn permits_are_handed_over_as_fast_as_those_of_a_semaphore() {
    for (limit, units) in [(1, [1; 8]), (3, [1, 3, 1, 2, 1, 1, 1, 1]), (7, [1; 8])] {
        let limiter = Limiter::new(
            paused_store(),
            Policy::new("permit", Concurrency::new(limit)),
        );
        let semaphore = Arc::new(Semaphore::new(limit as usize));
        let of_semaphore = move |units: u64| {
            let semaphore = Arc::clone(&semaphore);
            Box::pin(semaphore.acquire_many_owned(units as u32))
        };
        let started = Instant::now();
        let calls = pool(&units, ms(2), of_limiter(&limiter)).await;
        let took = started.elapsed();
        let started = Instant::now();
        let beside: Calls =
            pool::<Result<OwnedSemaphorePermit, _>, _>(&units, ms(2), of_semaphore).await;
        assert_eq!(took, started.elapsed());
        let order =
            |calls: &Calls| -> Vec<_> { calls.started.iter().map(|call| call.worker).collect() };
        assert_eq!(order(&calls), order(&beside));
    }
}

/// Callers come at random, about as many as the limit admits.
#[tokio::test(start_paused = true)]
async fn callers_of_an_open_loop_are_served_in_order() {
    let mut random = Random::new();
    for policy in policies() {
        let limiter = Limiter::new(paused_store(), policy.clone());
        let acquire = of_limiter(&limiter);
        let calls = Rc::new(RefCell::new(Calls::default()));
        let set = LocalSet::new();
        set.run_until(async {
            for came in 0..400 {
                let units = 1 + random.below(3) / 2;
                let waiting = acquire(units);
                let calls = calls.clone();
                tokio::task::spawn_local(async move {
                    let permit = waiting.await;
                    let started = Instant::now();
                    calls.borrow_mut().started.push(Call {
                        worker: 0,
                        came,
                        started,
                    });
                    sleep(ms(30)).await;
                    drop(permit);
                });
                sleep(ms(random.below(25))).await;
            }
        })
        .await;
        set.await;
        let calls = calls.take();
        assert_eq!(calls.started.len(), 400);
        calls.assert_in_order(&policy);
    }
}

/// Lets all tasks run until they wait.
async fn settled() {
    sleep(Duration::from_nanos(1)).await;
}

/// Callers come, leave and release at random. None waits while its units are free and all before it
/// are served.
#[tokio::test(start_paused = true)]
async fn no_waiter_for_permits_is_forgotten() {
    let mut random = Random::new();
    for _ in 0..walks(40) {
        let limit = random.between(1, 6);
        let limiter = Limiter::new(
            paused_store(),
            Policy::new("permit", Concurrency::new(limit)),
        );
        let mut waiting: Vec<(u64, tokio::task::JoinHandle<Permit>)> = Vec::new();
        let mut held: Vec<Permit> = Vec::new();
        for _ in 0..200 {
            match random.below(5) {
                0 | 1 => {
                    let (limiter, units) = (limiter.clone(), random.between(1, limit));
                    let task = tokio::spawn(async move {
                        limiter.acquire_n("ann", units, LONG).await.unwrap()
                    });
                    waiting.push((units, task));
                }
                2 if !waiting.is_empty() => {
                    let (_, left) = waiting.remove(random.below(waiting.len() as u64) as usize);
                    left.abort();
                }
                _ if !held.is_empty() => {
                    drop(held.swap_remove(random.below(held.len() as u64) as usize));
                }
                _ => {}
            }
            settled().await;
            while waiting
                .first()
                .is_some_and(|(_, first)| first.is_finished())
            {
                held.push(waiting.remove(0).1.await.unwrap());
            }
            let free = left(&limiter, "ann").await;
            if let Some((units, _)) = waiting.first() {
                assert!(*units > free, "{units} of {free}");
            }
            assert!(
                waiting.iter().all(|(_, task)| !task.is_finished()),
                "overtaken"
            );
        }
        for (_, task) in waiting {
            task.abort();
        }
    }
}

/// A caller that cannot wait for its turn takes no unit that is free for those before it.
#[tokio::test(start_paused = true)]
async fn a_caller_that_finds_the_line_too_long_takes_nothing() {
    let windows = [
        Policy::new("window", FixedWindow::new(1, ms(1_000))),
        Policy::new("log", SlidingLog::new(1, ms(1_000))),
        Policy::new("permit", Concurrency::new(1)),
    ];
    for policy in windows {
        let limiter = Limiter::builder().store(paused_store()).max_waiting(1);
        let limiter = limiter.policy(policy.clone()).build().unwrap();
        let held = acquire(&limiter, "ann", ms(0)).await;
        let waiting = come(&limiter, LONG);
        sleep(ms(1_000)).await;
        drop(held);
        assert!(peek(&limiter, "ann").await.is_allowed());
        let late = at_once(acquire(&limiter, "ann", LONG));
        assert!(!late.is_allowed(), "{policy:?}");
        assert_eq!(late.decision().denied_by().count(), 1);
        assert!(waiting.await.unwrap().is_allowed());
    }
}

/// Clients that send the next request at once do not starve those that wait in the layer.
#[tokio::test(start_paused = true)]
async fn a_layer_that_waits_serves_clients_in_turn() {
    let one = [
        Policy::new("one permit", Concurrency::new(1)),
        Policy::new("short window", FixedWindow::new(1, ms(2))),
    ];
    for policy in policies().into_iter().chain(one) {
        let layer = RateLimitLayer::builder()
            .store(paused_store())
            .policy(policy.clone().shared())
            .wait_up_to(ms(2_000))
            .build()
            .unwrap();
        let inner = service_fn(async |_: Request<()>| {
            sleep(ms(2)).await;
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        });
        let service = layer.layer(inner);
        let mut clients = JoinSet::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        for _ in 0..4 {
            let service = service.clone();
            clients.spawn(async move {
                let mut served = 0;
                while Instant::now() < deadline {
                    let response = service.clone().oneshot(Request::new(())).await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK);
                    served += 1;
                }
                served
            });
        }
        let served = clients.join_all().await;
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        let is_even = *least >= 20 && most - least <= 1;
        assert!(is_even, "{policy:?}: {served:?}");
    }
}
