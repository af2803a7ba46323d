//! Checks have no timers of their own, but none waits beyond its deadline.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use fred::{
    interfaces::ClientLike,
    types::{Builder, config::Config},
};
use tokio::{runtime::Runtime, time::sleep};
use tower_throttle::{Limiter, OnStoreFailure, Policy, RedisStore, TokenBucket};

use crate::support::{RedisServer, eventually_async, fake};

/// The number of refunds that reached the servers of this test.
static REFUNDS: AtomicUsize = AtomicUsize::new(0);

/// A server that answers a script call, after `pause`, with `reply` for its number of keys.
fn slow_server(pause: Duration, reply: fn(f64, usize) -> Option<Vec<u8>>) -> String {
    let port = fake::answer(move |_, words| {
        if !fake::is_script(words) {
            return b"+OK\r\n".to_vec();
        }
        thread::sleep(pause);
        REFUNDS.fetch_add(refunds(words), Ordering::Relaxed);
        reply(fake::nonce(words), words.len() - 4).unwrap_or_default()
    });
    format!("redis://127.0.0.1:{port}/")
}

/// Returns how many of the token buckets of a call get a refund.
fn refunds(words: &[Vec<u8>]) -> usize {
    let number = |bytes: &[u8]| f64::from_le_bytes(*bytes.first_chunk().expect("a number"));
    let groups = words.last().expect("numbers")[16..].chunks(64);
    let backs = groups.filter(|group| number(&group[16..]) as u64 / 64 == 3);
    backs
        .map(|group| (number(group) * number(&group[8..])) as usize)
        .sum()
}

fn limiter(url: &str, deadline: Duration) -> Limiter {
    let store = RedisStore::builder().timeout(deadline).connect(url);
    let policy = Policy::new("api", TokenBucket::per_second(10));
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    Limiter::new(store.expect("a store"), policy)
}

/// A later check waits for its own deadline only, although earlier checks already hang.
#[tokio::test]
async fn a_check_queued_at_a_hanging_server_waits_no_longer_than_its_deadline() {
    let deadline = Duration::from_millis(1_000);
    let url = slow_server(Duration::ZERO, |_, _| None);
    let limiter = limiter(&url, deadline);
    let mut checks = Vec::new();
    for number in 0..40_u64 {
        let limiter = limiter.clone();
        checks.push(tokio::spawn(async move {
            let asked = Instant::now();
            let error = limiter.check(number).await.expect_err("no answer");
            (asked.elapsed(), error)
        }));
        sleep(deadline / 50).await;
    }
    let mut waited = 0;
    for check in checks {
        let (elapsed, error) = check.await.expect("no panic");
        assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
        assert!(elapsed < deadline * 3 / 2, "{elapsed:?}");
        waited += usize::from(elapsed >= deadline * 9 / 10);
    }
    assert!(waited >= 10, "{waited} of 40 waited for an answer");
}

fn honest(nonce: f64, keys: usize) -> Option<Vec<u8>> {
    let mut numbers = vec![nonce, 1_795_242_000_000_000.0];
    numbers.extend([1.0, 0.0].repeat(keys));
    Some(fake::reply(&numbers))
}

/// More checks come than the server can answer: it decides as many as it can.
#[tokio::test]
async fn an_overloaded_server_gets_only_checks_that_it_can_answer_in_time() {
    let (deadline, pause) = (Duration::from_millis(1_000), Duration::from_millis(100));
    let limiter = limiter(&slow_server(pause, honest), deadline);
    eventually_async("a connection", || async { limiter.check(0).await.is_ok() }).await;
    let mut checks = Vec::new();
    let began = Instant::now();
    // In each pause it decides at most 128.
    while began.elapsed() < 40 * pause {
        let due = (began.elapsed().as_secs_f64() * 2_000.0) as u64;
        while (checks.len() as u64) < due {
            let (limiter, number) = (limiter.clone(), checks.len() as u64 + 1);
            checks.push(tokio::spawn(async move { limiter.check(number).await }));
        }
        sleep(pause / 20).await;
    }
    let (mut decided, mut overloaded, mut others) = (0, 0, 0);
    for check in checks {
        match check.await.expect("no panic") {
            Ok(_) => decided += 1,
            Err(error) if error.is_overloaded() => overloaded += 1,
            Err(_) => others += 1,
        }
    }
    let reported = format!("{decided} decided, {overloaded} refused as overload, {others} others");
    assert!(decided >= 40 * 128 / 2, "{reported}");
    assert!(overloaded >= 500, "{reported}");
    // There are nearly none, except on a machine that stalls now and then. If all were sent,
    // there would be nearly as many as decisions.
    assert!(others * 3 < decided, "{reported}");
}

/// Checks make way for the refund, and it is sent although its answer would be late.
#[tokio::test]
async fn a_refund_during_an_overload_arrives() {
    let (deadline, pause) = (Duration::from_millis(1_000), Duration::from_millis(100));
    let limiter = limiter(&slow_server(pause, honest), deadline);
    eventually_async("a connection", || async { limiter.check(0).await.is_ok() }).await;
    let (mut checks, mut credits) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while began.elapsed() < 30 * pause {
        let due = (began.elapsed().as_secs_f64() * 3_000.0) as u64;
        while (checks.len() as u64) < due {
            let (again, number) = (limiter.clone(), checks.len() as u64 + 1);
            checks.push(tokio::spawn(async move { again.check(number).await }));
            if number % 50 == 0 {
                let again = limiter.clone();
                credits.push(tokio::spawn(async move { again.credit(number, 1).await }));
            }
        }
        sleep(pause / 20).await;
    }
    let mut overloaded = 0;
    for check in checks {
        let answer = check.await.expect("no panic");
        overloaded += usize::from(answer.is_err_and(|error| error.is_overloaded()));
    }
    assert!(overloaded >= 500, "{overloaded} refused as overload");
    eventually_async("the refund", || async {
        tokio::task::yield_now().await;
        REFUNDS.load(Ordering::Relaxed) * 100 >= credits.len() * 95
    })
    .await;
}

/// The queue moves, but not fast enough.
#[tokio::test]
async fn a_check_whose_turn_comes_too_late_fails_as_overloaded() {
    let deadline = Duration::from_millis(400);
    let limiter = limiter(&slow_server(deadline / 4, honest), deadline);
    eventually_async("a connection", || async { limiter.check(0).await.is_ok() }).await;
    let checks: Vec<_> = (1..=2_000_u64)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let asked = Instant::now();
                (limiter.check(number).await, asked.elapsed())
            })
        })
        .collect();
    let (mut decided, mut overloaded) = (0, 0);
    for check in checks {
        let (answer, elapsed) = check.await.expect("no panic");
        assert!(elapsed < deadline * 2, "{elapsed:?}");
        match answer {
            Ok(_) => decided += 1,
            Err(error) if error.is_overloaded() => overloaded += 1,
            Err(error) => assert!(error.is_timeout() || error.is_unavailable(), "{error:?}"),
        }
    }
    assert!(decided >= 60, "{decided} decided");
    assert!(overloaded >= 500, "{overloaded} refused as overload");
}

/// A process that stalls finds its checks late although the server is healthy.
#[tokio::test]
async fn a_check_that_is_late_before_it_is_sent_is_not_a_failure_of_the_server() {
    let server = RedisServer::start();
    let client = Builder::from_config(Config::from_url(&server.url()).expect("a URL"));
    let client = client.build().expect("a client");
    client.init().await.expect("a connection");
    let store = |deadline| {
        let builder = RedisStore::builder().timeout(deadline);
        builder.client(client.clone()).expect("a store")
    };
    let policy = Policy::new("api", TokenBucket::per_second(10));
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    let late = Limiter::new(store(Duration::from_nanos(1)), policy.clone());
    for number in 0..100 {
        let error = late.check("ann").await.expect_err("no time");
        assert!(error.is_overloaded(), "{number}: {error:?}");
        late.reset("ann").await.expect_err("no time");
    }
    assert!(server.keys().is_empty());
    let stats = server.command(&["INFO", "commandstats"]);
    for command in ["cmdstat_evalsha", "cmdstat_del"] {
        assert!(!stats.contains(command), "{stats}");
    }
    let in_time = Limiter::new(store(crate::support::DEADLINE), policy);
    assert!(in_time.check("ann").await.expect("a decision").is_allowed());
}

/// The runtime has not ended, but nothing drives its tasks.
#[test]
fn a_stalled_runtime_delays_no_caller_of_another() {
    let server = RedisServer::start();
    let still = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let deadline = Duration::from_millis(300);
    let limiter = still.block_on(async {
        let limiter = limiter(&server.url(), deadline);
        eventually_async("a connection", || async { limiter.check(0).await.is_ok() }).await;
        limiter
    });
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let asked = Instant::now();
        let checks: Vec<_> = (0..20_u64)
            .map(|number| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check(number).await })
            })
            .collect();
        for check in checks {
            let error = check.await.expect("no panic").expect_err("no answer");
            assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
        }
        assert!(asked.elapsed() < deadline * 4, "{:?}", asked.elapsed());
    });
    drop(still);
}
