//! The sliding log in Redis: one entry for each request, whatever it costs.

use crate::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn redis(server: &RedisServer, clock: &Arc<ManualClock>) -> RedisStore {
    patient()
        .clock(clock.clone())
        .connect(&server.url())
        .expect("a store")
}

fn limiter(store: impl Store, log: SlidingLog) -> Limiter {
    let policy = Policy::new("log", log).on_store_failure(OnStoreFailure::Deny);
    Limiter::new(store, policy)
}

/// Returns the bytes of the key.
fn size(server: &RedisServer, limiter: &Limiter) -> u64 {
    let key = limiter.storage_keys("ann").remove(0);
    server.command(&["STRLEN", &key]).parse().expect("a number")
}

#[tokio::test]
async fn a_request_is_one_entry_whatever_it_costs() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let limiter = limiter(redis(&server, &clock), SlidingLog::new(10_000, DAY));
    for (entries, cost) in [(1, 1), (2, 5_000), (3, 4_998), (4, 1)] {
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check_n("ann", cost).await.unwrap().is_allowed());
        assert_eq!(size(&server, &limiter), 6 + 12 * entries);
    }
    assert!(!limiter.check("ann").await.unwrap().is_allowed());
    // The newest entry, and a part of the one before.
    let credit = limiter.credit("ann", 100).await.unwrap();
    assert_eq!(credit.refunded(), 100);
    assert_eq!(size(&server, &limiter), 6 + 12 * 3);
    // All requests of one instant are one entry.
    for _ in 0..50 {
        assert!(limiter.check("ann").await.unwrap().is_allowed());
    }
    assert_eq!(size(&server, &limiter), 6 + 12 * 4);
}

/// An empty log expires soon, whatever its window.
#[tokio::test]
async fn a_log_that_a_credit_emptied_expires_soon() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let limiter = limiter(redis(&server, &clock), SlidingLog::new(3, 36_500 * DAY));
    assert!(limiter.check("ann").await.unwrap().is_allowed());
    assert_eq!(limiter.credit("ann", 1).await.unwrap().refunded(), 1);
    assert_eq!(size(&server, &limiter), 6);
    let key = limiter.storage_keys("ann").remove(0);
    let left_ms: u64 = server.command(&["PTTL", &key]).parse().expect("a time");
    // A store with a clock that was handed in keeps keys for a minute more.
    assert!(left_ms <= 60_000, "{left_ms}");
}

/// Debits of a caller in debt add to its newest entry.
#[tokio::test]
async fn a_debt_has_no_more_entries_than_the_limit() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let limiter = limiter(redis(&server, &clock), SlidingLog::new(10, DAY));
    for number in 1..=1_000 {
        clock.advance(Duration::from_micros(1));
        let debit = limiter.debit("ann", 3).await.unwrap();
        assert_eq!(debit.charged(), 3);
        assert_eq!(size(&server, &limiter), 6 + 12 * number.min(10));
    }
    clock.advance(DAY);
    assert!(limiter.check("ann").await.unwrap().is_allowed());
}

/// Within one window of the last microsecond that a script counts exactly.
#[tokio::test]
async fn a_clock_near_its_end_is_no_corrupt_state() {
    let server = RedisServer::start();
    for window in [DAY, 36_500 * DAY] {
        let end_us = 1 << 53;
        let [here, there] = [(); 2].map(|()| Arc::new(ManualClock::new()));
        let memory = MemoryStore::builder().clock(here.clone()).build();
        let (memory, redis) = (
            limiter(memory, SlidingLog::new(3, window)),
            limiter(redis(&server, &there), SlidingLog::new(3, window)),
        );
        for before_us in [1_000_000_000_000, 10_000_000, 1_001, 1_000, 3, 2, 1, 0] {
            here.set_us(end_us - before_us);
            there.set_us(end_us - before_us);
            assert_eq!(here.now_us(), end_us - before_us);
            for units in [0, 1, 2] {
                let expected = memory.check_n("ann", units).await.unwrap();
                let decision = redis.check_n("ann", units).await.unwrap();
                assert_eq!(decision.verdict(), expected.verdict());
                assert_eq!(decision.retry_after(), expected.retry_after());
                let reset = |decision: &Decision| decision.policies().next().unwrap().reset_after();
                assert_eq!(reset(&decision), reset(&expected));
            }
        }
        assert!(!redis.check("ann").await.unwrap().is_allowed());
        redis.reset("ann").await.unwrap();
    }
}
