//! Crowds: what is refunded when they leave, and which callers wait for a window.

use tokio::time::Instant;

use crate::support::prelude::*;

/// Longer than any wait in these tests.
const LONG: Duration = Duration::from_secs(4_000_000);

/// How much work each of them makes is tested beside the queue.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_before_and_after_a_reset_is_refunded_what_counts() {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(1).burst(1));
    assert!(acquire(&limiter, "ann", LONG).await.is_allowed());
    let mut crowd: Vec<_> = (0..5_000).map(|_| come(&limiter, LONG)).collect();
    limiter.reset("ann").await.unwrap();
    assert!(acquire(&limiter, "ann", LONG).await.is_allowed());
    crowd.extend((0..2_500).map(|_| come(&limiter, LONG)));
    drop(crowd);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(taken(&limiter).await, ms(999));
}

#[tokio::test(start_paused = true)]
async fn a_full_wait_queue_denies_at_once_and_takes_nothing() {
    for policy in [
        Policy::new("bucket", TokenBucket::per_second(1).burst(1)),
        Policy::new("leaky", LeakyBucket::per_second(1).capacity(1)),
        Policy::new("queue", LeakyBucket::per_second(1).queue(100)),
        Policy::new("at once", TokenBucket::new(1, ms(1_000)).refill_at_once()),
        Policy::new("window", FixedWindow::new(1, ms(1_000))),
        Policy::new("aligned", FixedWindow::new(1, ms(1_000)).aligned()),
        Policy::new("sliding", SlidingWindow::new(1, ms(1_000))),
        Policy::new("log", SlidingLog::new(1, ms(1_000))),
        Policy::new("permits", Concurrency::new(1)),
    ] {
        let limiter = Limiter::builder().store(paused_store()).max_waiting(5);
        let limiter = limiter.policy(policy.clone()).build().unwrap();
        let first = acquire(&limiter, "ann", ms(0)).await;
        assert!(first.is_allowed());
        let mut line: Vec<_> = (0..5).map(|_| come(&limiter, LONG)).collect();
        let before = peek(&limiter, "ann").await;
        let denied = at_once(acquire(&limiter, "ann", LONG));
        assert!(!denied.is_allowed(), "{policy:?}");
        assert!(denied.decision().retry_after() > Some(ms(0)));
        let after = peek(&limiter, "ann").await;
        assert_eq!(before.retry_after(), after.retry_after(), "{policy:?}");
        // Other callers have queues of their own, and a place whose waiter left is free.
        assert!(acquire(&limiter, "bob", ms(0)).await.is_allowed());
        drop(line.remove(2));
        drop(come(&limiter, LONG));
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
    let acquire = async |wait| limiter.acquire_n("ann", MOST, wait).await.unwrap();
    assert!(acquire(ms(0)).await.is_allowed());
    let mut tasks = JoinSet::new();
    for _ in 0..2_200 {
        let limiter = limiter.clone();
        tasks.spawn(async move { limiter.acquire_n("ann", MOST, ms(10_000_000)).await });
    }
    tokio::time::sleep(ms(2_500)).await;
    assert!(!acquire(ms(60_000)).await.is_allowed());
    tasks.abort_all();
    while let Some(ended) = tasks.join_next().await {
        assert!(!ended.is_err_and(|error| error.is_panic()));
    }
}

struct Crowd {
    /// The number of checks after the first instant, and the most of one millisecond.
    checks: usize,
    most: usize,
    waited: usize,
    admitted: usize,
}

/// Lets all callers come at once, each with this longest wait.
async fn crowd(policy: impl Into<Policy>, callers: usize, wait: Duration) -> Crowd {
    let checks = Arc::new(Mutex::new(BTreeMap::new()));
    let (counted, started) = (Arc::clone(&checks), Instant::now());
    let store = wrapped(paused_store(), move |store, check| {
        let now_ms = started.elapsed().as_millis();
        *counted.lock().unwrap().entry(now_ms).or_insert(0) += 1;
        store.check(check)
    });
    let limiter = Limiter::new(store, policy);
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let started = Instant::now();
            let permit = acquire(&limiter, "ann", wait).await;
            let waited = started.elapsed();
            assert!(waited <= wait, "{waited:?}");
            (permit.is_allowed(), waited)
        });
    }
    let all = tasks.join_all().await;
    let mut checks = checks.lock().unwrap();
    checks.remove(&0);
    Crowd {
        checks: checks.values().sum(),
        most: checks.values().copied().max().unwrap_or(0),
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
        assert_eq!((crowd.waited, crowd.admitted), (50, 60), "{policy:?}");
        assert!(crowd.checks <= 60, "{policy:?}: {}", crowd.checks);
    }
}

/// As many wait for an estimate, but after a burst it admits fewer than its limit in each window. The
/// last ones are denied at the end of their time.
#[tokio::test(start_paused = true)]
async fn no_more_callers_wait_for_an_estimate_than_for_a_window() {
    let window = SlidingWindow::new(10, ms(1_000));
    for wait in [ms(300), ms(1_000)] {
        let crowd = crowd(window, 10_000, wait).await;
        assert_eq!((crowd.waited, crowd.admitted), (0, 10));
    }
    let crowd = crowd(window, 10_000, ms(5_100)).await;
    assert_eq!(crowd.waited, 50);
    assert!((45..60).contains(&crowd.admitted), "{}", crowd.admitted);
    assert!(crowd.checks <= 100, "{}", crowd.checks);
}

/// Each window admits many callers: they check one after another, and all in time.
#[tokio::test(start_paused = true)]
async fn callers_that_a_window_admits_do_not_ask_at_one_instant() {
    let crowd = crowd(FixedWindow::new(10_000, ms(1_000)), 50_000, ms(5_000)).await;
    assert_eq!((crowd.waited, crowd.admitted), (40_000, 50_000));
    assert!(crowd.most <= 200, "{}", crowd.most);
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
                let acquire = acquire(&limiter, "ann", wait);
                if leaves {
                    let _ = tokio::time::timeout(leaves_at, acquire).await;
                    return true;
                }
                let is_allowed = acquire.await.is_allowed();
                assert!(started.elapsed() <= wait);
                is_allowed
            });
        }
        let stayed = tasks.join_all().await;
        assert!(stayed.iter().all(|is_well| *is_well), "{policy:?}");
    }
}
