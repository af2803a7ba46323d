//! Crowds: what is refunded when they leave, and which callers wait for a window.

use std::pin::Pin;

use tokio::time::Instant;

use crate::support::prelude::*;

/// Longer than any wait in these tests.
const LONG: Duration = Duration::from_secs(4_000_000);

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, StoreError>> + 'a>>;

#[derive(Clone, Copy, Debug)]
enum Order {
    FirstFirst,
    LastFirst,
    Random,
    FirstFirstAfterReset,
}

/// Lets callers leave one queue. How much work each of them makes is tested beside the queue.
async fn leave(callers: usize, order: Order) {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(1).burst(1));
    let come = |callers: usize| -> Vec<Waiting<'_>> {
        let come = |_| {
            let mut waiting: Waiting<'_> = Box::pin(limiter.acquire("ann", LONG));
            assert!(poll(&mut waiting).is_pending());
            waiting
        };
        (0..callers).map(come).collect()
    };
    assert!(limiter.acquire("ann", LONG).await.unwrap().is_allowed());
    let mut crowd = come(callers);
    match order {
        Order::FirstFirst => {}
        Order::LastFirst => crowd.reverse(),
        Order::Random => {
            let mut random = Random::new();
            for at in (1..crowd.len()).rev() {
                crowd.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        Order::FirstFirstAfterReset => {
            crowd.truncate(callers / 2);
            limiter.reset("ann").await.unwrap();
            assert!(limiter.acquire("ann", LONG).await.unwrap().is_allowed());
            crowd.extend(come(callers / 2));
        }
    }
    drop(crowd);
    tokio::time::sleep(ms(1)).await;
    let decision = limiter.peek("ann").await.unwrap();
    let left = decision.policies().next().unwrap().reset_after();
    assert_eq!(left, ms(999), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_leaves_in_any_order_is_refunded_in_full() {
    for order in [
        Order::FirstFirst,
        Order::LastFirst,
        Order::Random,
        Order::FirstFirstAfterReset,
    ] {
        leave(5_000, order).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_wait_queue_denies_at_once_and_takes_nothing() {
    for policy in [
        Policy::new("bucket", TokenBucket::per_second(1).burst(1)),
        Policy::new("queue", LeakyBucket::per_second(1).queue(100)),
        Policy::new("window", FixedWindow::new(1, ms(1_000))),
        Policy::new("log", SlidingLog::new(1, ms(1_000))),
        Policy::new("permits", Concurrency::new(1)),
    ] {
        let limiter = Limiter::builder().store(paused_store()).max_waiting(5);
        let limiter = limiter.policy(policy.clone()).build().unwrap();
        let first = limiter.acquire("ann", ms(0)).await.unwrap();
        assert!(first.is_allowed());
        let come = || -> Waiting<'_> { Box::pin(limiter.acquire("ann", LONG)) };
        let mut line: Vec<_> = (0..5).map(|_| come()).collect();
        for waiting in &mut line {
            assert!(poll(waiting).is_pending(), "{policy:?}");
        }
        let before = limiter.peek("ann").await.unwrap();
        let mut denied = come();
        let Poll::Ready(Ok(permit)) = poll(&mut denied) else {
            panic!("{policy:?}: a sixth waits");
        };
        assert!(!permit.is_allowed(), "{policy:?}");
        assert!(permit.decision().retry_after().unwrap() > ms(0));
        let after = limiter.peek("ann").await.unwrap();
        assert_eq!(before.retry_after(), after.retry_after(), "{policy:?}");
        // Other callers have queues of their own, and a place whose waiter left is free.
        assert!(limiter.acquire("bob", ms(0)).await.unwrap().is_allowed());
        drop(line.swap_remove(2));
        assert!(poll(&mut come()).is_pending(), "{policy:?}");
        drop(first);
        for waiting in line {
            assert!(waiting.await.unwrap().is_allowed(), "{policy:?}");
        }
    }
}

/// Each of many callers asks for as many units as a quota can have.
#[tokio::test(start_paused = true)]
async fn a_window_queue_is_full_if_its_units_cannot_be_counted() {
    const MOST: u64 = (1 << 53) - 1;
    let limiter = Limiter::new(paused_store(), FixedWindow::new(MOST, ms(1_000)));
    assert!(
        limiter
            .acquire_n("ann", MOST, ms(0))
            .await
            .unwrap()
            .is_allowed()
    );
    let mut tasks = JoinSet::new();
    for _ in 0..2_200 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let permit = limiter.acquire_n("ann", MOST, ms(10_000_000)).await;
            permit.unwrap().is_allowed()
        });
    }
    tokio::time::sleep(ms(2_500)).await;
    let late = limiter.acquire_n("ann", MOST, ms(60_000)).await.unwrap();
    assert!(!late.is_allowed());
    tasks.abort_all();
    while let Some(ended) = tasks.join_next().await {
        assert!(!ended.is_err_and(|error| error.is_panic()));
    }
}

/// Counts the checks of each instant.
#[derive(Debug)]
struct Counting<S> {
    store: S,
    started: Instant,
    checks: Arc<Mutex<BTreeMap<u64, usize>>>,
}

impl<S: Store> Store for Counting<S> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let now_ms = self.started.elapsed().as_millis() as u64;
        *self.checks.lock().unwrap().entry(now_ms).or_default() += 1;
        self.store.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }
}

struct Crowd {
    /// The number of checks in each millisecond.
    checks: BTreeMap<u64, usize>,
    waited: usize,
    admitted: usize,
}

/// Lets all callers come at once, each with this longest wait.
async fn crowd(policy: impl Into<Policy>, callers: usize, wait: Duration) -> Crowd {
    let checks = Arc::default();
    let store = Counting {
        store: paused_store(),
        started: Instant::now(),
        checks: Arc::clone(&checks),
    };
    let limiter = Limiter::new(store, policy);
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let started = Instant::now();
            let permit = limiter.acquire("ann", wait).await.unwrap();
            let waited = started.elapsed();
            assert!(waited <= wait, "{waited:?}");
            (permit.is_allowed(), waited)
        });
    }
    let all = tasks.join_all().await;
    let mut checks = checks.lock().unwrap().clone();
    checks.remove(&0);
    Crowd {
        checks,
        waited: all.iter().filter(|(_, waited)| *waited > ms(0)).count(),
        admitted: all.iter().filter(|(is_allowed, _)| *is_allowed).count(),
    }
}

/// 10,000 callers, of which 60 can be admitted in time.
#[tokio::test(start_paused = true)]
async fn only_as_many_callers_wait_for_a_window_as_it_can_admit_in_time() {
    for policy in [
        Policy::new("window", FixedWindow::new(10, ms(1_000))),
        Policy::new("aligned", FixedWindow::new(10, ms(1_000)).aligned()),
        Policy::new("at once", TokenBucket::new(10, ms(1_000)).refill_at_once()),
        Policy::new("log", SlidingLog::new(10, ms(1_000))),
    ] {
        // Timers tick late by up to a millisecond, and an entry of a log then leaves as much
        // later.
        let crowd = crowd(policy.clone(), 10_000, ms(5_100)).await;
        let most = crowd.checks.values().max();
        println!(
            "{} waited, {} were admitted, {most:?} checks in one millisecond at most",
            crowd.waited, crowd.admitted,
        );
        assert_eq!((crowd.waited, crowd.admitted), (50, 60), "{policy:?}");
        assert!(most <= Some(&64), "{policy:?}: {most:?}");
        let checks: usize = crowd.checks.values().sum();
        assert!(checks <= 60, "{policy:?}: {checks} checks for 50 waiters");
    }
}

/// Each window admits many callers: they check one after another, and all in time.
#[tokio::test(start_paused = true)]
async fn callers_that_a_window_admits_do_not_ask_at_one_instant() {
    let crowd = crowd(FixedWindow::new(10_000, ms(1_000)), 50_000, ms(5_000)).await;
    let most = crowd.checks.values().max();
    println!(
        "{} waited, {most:?} checks in one millisecond at most",
        crowd.waited
    );
    assert_eq!((crowd.waited, crowd.admitted), (40_000, 50_000));
    assert!(most <= Some(&200), "{most:?}");
}

/// No waiter starves or waits beyond its bound, though callers leave at random and others take
/// units without waiting.
#[tokio::test(start_paused = true)]
async fn a_queue_for_a_window_loses_no_units_to_callers_that_leave() {
    let mut random = Random::new();
    for policy in [
        Policy::new("window", FixedWindow::new(5, ms(100))),
        Policy::new("log", SlidingLog::new(5, ms(100))),
        Policy::new("sliding", SlidingWindow::new(5, ms(100))),
    ] {
        let limiter = Limiter::new(paused_store(), policy.clone());
        let mut tasks = JoinSet::new();
        let wait = ms(4_000);
        for _ in 0..150 {
            let (limiter, leaves_at) = (limiter.clone(), ms(random.below(4_000)));
            let leaves = random.below(2) == 0;
            tasks.spawn(async move {
                let started = Instant::now();
                let acquire = limiter.acquire("ann", wait);
                if leaves {
                    let _ = tokio::time::timeout(leaves_at, acquire).await;
                    return true;
                }
                let is_allowed = acquire.await.unwrap().is_allowed();
                assert!(started.elapsed() <= wait);
                is_allowed
            });
        }
        let stayed = tasks.join_all().await;
        assert!(stayed.iter().all(|is_well| *is_well), "{policy:?}");
    }
}
