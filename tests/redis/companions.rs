//! Checks that travel in the call of another, when that call fails.

use std::time::Duration;
#[cfg(feature = "testing")]
use std::{future::poll_fn, task::Poll};

#[cfg(feature = "testing")]
use tokio::time::timeout;
#[cfg(feature = "testing")]
use tower_throttle::testing::SimulatedRedis;
use tower_throttle::{
    Decision, Limiter, OnStoreFailure, Policy, RedisStore, TokenBucket,
    metrics::StoreMetrics,
    store::{Answer, Charge, Check, Store},
};

use crate::{
    batching::{Asked, enqueue},
    support::{DEADLINE, RedisServer, eventually_async, fake},
};

const NOW_US: f64 = 1_767_225_600_000_000.0;

fn store(port: u16, timeout: Duration) -> RedisStore {
    let builder = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
    let store = builder.timeout(timeout);
    let store = store.connect(&format!("redis://127.0.0.1:{port}/"));
    store.expect("a store")
}

fn limiter(store: impl Store) -> Limiter {
    let policy = Policy::new("day", TokenBucket::per_day(100));
    Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny))
}

/// Asks for each check this many times at once, and answers with the first, which carries the
/// others.
#[derive(Debug)]
struct Together(RedisStore, usize);

impl Store for Together {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let answers = self.0.check_all(&vec![*check; self.1]);
        Answer::Later(Box::pin(async move {
            let mut results = Vec::new();
            for answer in answers {
                results.push(match answer {
                    Answer::Now(answer) => answer,
                    Answer::Later(answer) => answer.await,
                });
            }
            results.remove(0)
        }))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }

    fn metrics(&self) -> StoreMetrics {
        self.0.metrics()
    }
}

/// Asks for each check twice at once. Hangs up on the first, which carries the second, when the
/// server has got this many checks.
#[cfg(feature = "testing")]
#[derive(Debug)]
struct HangsUp {
    store: RedisStore,
    redis: SimulatedRedis,
    when: u64,
}

#[cfg(feature = "testing")]
impl Store for HangsUp {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let answers = self.store.check_all(&[*check; 2]);
        let (redis, when) = (self.redis.clone(), self.when);
        Answer::Later(Box::pin(async move {
            let mut answers = answers.into_iter();
            let (Some(Answer::Later(mut carrier)), Some(Answer::Later(companion))) =
                (answers.next(), answers.next())
            else {
                return Err(tower_throttle::StoreError::unavailable(
                    "nothing to wait for",
                ));
            };
            let polled = poll_fn(|cx| Poll::Ready(carrier.as_mut().poll(cx))).await;
            assert!(polled.is_pending(), "{polled:?}");
            while redis.served().checks < when {
                let polled = timeout(Duration::from_millis(1), carrier.as_mut()).await;
                assert!(polled.is_err(), "{polled:?}");
            }
            drop(carrier);
            companion.await
        }))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }
}

/// It was sent, and may have been charged.
#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn a_check_that_was_sent_times_out_although_the_caller_of_its_carrier_left() {
    // Some checks are sent alone, and more share a call.
    for ahead in [0, 8] {
        let redis = SimulatedRedis::new();
        let store = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
        let store = store.simulated(&redis).expect("a store");
        // Calls arrive within the timeout of 50 ms, and their replies do not.
        redis.set_delay(Duration::from_millis(30));
        let before = limiter(store.clone());
        let when = ahead + 2;
        let its = redis.clone();
        let tested = limiter(HangsUp {
            store,
            redis: its,
            when,
        });
        for number in 0..ahead {
            let before = before.clone();
            tokio::spawn(async move { before.check(number).await });
        }
        let companion = tokio::spawn(async move { tested.check("ann").await });
        let error = companion.await.expect("no panic").expect_err("no answer");
        assert!(error.is_timeout(), "{ahead} ahead: {error:?}");
        assert_eq!(redis.served().checks, when, "{ahead} ahead");
    }
}

#[tokio::test]
async fn each_check_that_is_asked_together_with_others_is_in_flight() {
    let server = RedisServer::start();
    let store = store(server.port(), DEADLINE);
    let alone = limiter(store.clone());
    eventually_async("a connection", || async { alone.peek(0).await.is_ok() }).await;
    let in_flight = || alone.metrics().store.in_flight;
    let tested = limiter(Together(store, 20));
    let mut asked: Vec<Asked> = vec![Box::pin(async move { tested.check("ann").await })];
    enqueue(&mut asked).await;
    assert_eq!(in_flight(), Some(20));
    for check in asked {
        assert!(check.await.expect("a decision").is_allowed());
    }
    assert_eq!(in_flight(), Some(0));
}

/// They may write nothing, so their answers say nothing about a server out of memory.
#[tokio::test]
async fn a_server_that_refuses_all_but_companions_opens_the_breaker() {
    // The verdict on a command that was refused for lack of memory.
    const OOM: f64 = -3.0;
    let port = fake::answer(|_, words| match fake::is_script(words) {
        true => fake::reply(&[fake::nonce(words), NOW_US, OOM, 0.0, 1.0, 0.0]),
        false => b"+OK\r\n".to_vec(),
    });
    let tested = limiter(Together(store(port, DEADLINE), 2));
    let mut refused = 0;
    for _ in 0..7 {
        let error = tested.check("ann").await.expect_err("it refuses");
        refused += u64::from(error.is_refused());
    }
    assert_eq!(tested.metrics().store.breakers_open, Some(1), "{refused}");
    assert!(refused >= 5, "{refused}");
}
