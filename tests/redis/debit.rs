//! A debit charges each policy as far as its debt allows, and returns what was not charged.

use crate::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Returns a memory store and a store in Redis, each with a clock of its own.
fn stores(server: &RedisServer) -> [(Arc<dyn Store>, Arc<ManualClock>); 2] {
    let [here, there] = [(); 2].map(|()| Arc::new(ManualClock::new()));
    let memory = MemoryStore::builder().clock(here.clone()).build();
    let redis = patient()
        .clock(there.clone())
        .connect(&server.url())
        .expect("a store");
    [(Arc::new(memory), here), (Arc::new(redis), there)]
}

fn one(store: Arc<dyn Store>, quota: impl Into<Policy>) -> Limiter {
    denying_limiter(store, [quota.into()])
}

#[tokio::test]
async fn streams_that_end_at_once_are_all_charged() {
    let server = RedisServer::start();
    for (store, _) in stores(&server) {
        let limiter = one(store, TokenBucket::per_minute(100_000));
        let mut streams = JoinSet::new();
        for _ in 0..20 {
            let limiter = limiter.clone();
            streams.spawn(async move { limiter.debit("ann", 250_000).await.unwrap().charged() });
        }
        let charged: u64 = streams.join_all().await.into_iter().sum();
        assert_eq!(charged, 20 * 250_000);
        let peek = limiter.peek("ann").await.unwrap();
        let policy = peek.policies().next().unwrap();
        assert_eq!(policy.reset_after(), 50 * MINUTE);
    }
}

fn of_every_algorithm() -> Vec<Quota> {
    let bucket = TokenBucket::new(10, MINUTE);
    vec![
        bucket.try_into().unwrap(),
        bucket.refill_at_once().try_into().unwrap(),
        TokenBucket::without_refill(10).try_into().unwrap(),
        LeakyBucket::new(10, MINUTE).try_into().unwrap(),
        LeakyBucket::new(10, MINUTE).queue(9).try_into().unwrap(),
        FixedWindow::new(10, MINUTE).try_into().unwrap(),
        FixedWindow::per_calendar_month(10)
            .spread()
            .try_into()
            .unwrap(),
        SlidingWindow::new(10, MINUTE).try_into().unwrap(),
        SlidingLog::new(10, MINUTE).try_into().unwrap(),
    ]
}

/// The caller's policies are in one slot of a cluster, and a shared one in another.
#[tokio::test]
async fn each_slot_of_a_cluster_is_charged() {
    let cluster = RedisCluster::start(3, 0);
    let store = patient();
    let store = Arc::new(store.connect(&cluster.url()).expect("a store"));
    let own = Policy::new("own", TokenBucket::per_day(100));
    let all = Policy::new("all", FixedWindow::per_day(10))
        .shared()
        .max_debt(5);
    let limiter = denying_limiter(store, [all, own]);
    for caller in 0..20_u64 {
        limiter.reset_shared().await.unwrap();
        let debit = limiter.debit(caller, 250).await.unwrap();
        let charged: Vec<_> = debit.policies().map(|policy| policy.charged()).collect();
        assert_eq!(charged, [15, 250]);
        let denied = limiter.check(caller).await.unwrap();
        assert_eq!(denied.denied_by().count(), 2);
    }
}

/// Each change carries at most twice the new burst. What is carried does not become a debt, which
/// the next change would carry in full.
#[tokio::test]
async fn numbers_that_change_twice_carry_no_more_than_the_last_change_may() {
    let server = RedisServer::start();
    for (store, _) in stores(&server) {
        let of = |burst: u64| {
            let quota = TokenBucket::per_minute(1).refill_at_once().burst(burst);
            one(store.clone(), Policy::new("api", quota))
        };
        let (first, second, third) = (of(1_000), of(100), of(1));
        assert!(first.check_n("ann", 1_000).await.unwrap().is_allowed());
        // Each of these writes what it carries.
        let debit = second.debit("ann", 3).await.unwrap();
        assert_eq!(debit.charged(), 3);
        let left = debit.policies().next().unwrap().reset_after();
        assert_eq!(left, (2 * 100 + 3) * MINUTE);
        // It pays a part of the debt.
        second.credit("ann", 1).await.unwrap();

        // Of the 200 taken units, two count. The two owed ones count in full.
        let denied = third.check("ann").await.unwrap();
        assert_eq!(denied.retry_after(), Some((2 + 2) * MINUTE));
    }
}

fn build(policy: Policy) -> Result<(), ConfigError> {
    Limiter::builder().policy(policy).build().map(drop)
}

#[test]
fn a_debt_may_be_as_large_as_the_arithmetic_holds_exactly() {
    // A bucket can be 104 days and 6 hours away from full, and 60 days are its own.
    let deep = Policy::new("deep", TokenBucket::new(1, DAY).burst(60));
    assert_eq!(build(deep.clone().max_debt(44)), Ok(()));
    let mistake = build(deep.max_debt(45)).unwrap_err().to_string();
    let is_told = mistake.contains("`max_debt(45)`") && mistake.contains("44");
    assert!(is_told, "{mistake}");

    for (quota, most) in [
        (of_every_algorithm()[1], 10 * ((1 << 53) / 60_000) - 10),
        (of_every_algorithm()[2], (1 << 53) - 1_010),
        (of_every_algorithm()[5], (1 << 53) - 1_010),
        (of_every_algorithm()[7], ((1 << 52) - 1) / 60_000 - 10),
        (of_every_algorithm()[8], (1 << 40) - 11),
    ] {
        let policy = Policy::new("most", quota);
        assert_eq!(build(policy.clone().max_debt(most)), Ok(()), "{quota:?}");
        assert!(build(policy.max_debt(most + 1)).is_err(), "{quota:?}");
    }
}

#[tokio::test]
async fn permits_cannot_be_owed() {
    let policy = Policy::new("held", Concurrency::new(5));
    let mistake = build(policy.clone().max_debt(1)).unwrap_err().to_string();
    assert!(mistake.contains("drop `max_debt(..)`"), "{mistake}");
    let limiter = one(Arc::new(MemoryStore::new()), policy.max_debt(0));
    let error = limiter.debit("ann", 1).await.unwrap_err();
    assert!(error.is_unsupported());
}

/// A waiter counts the debt as part of its wait, and does not wait in vain.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_debt_waits_until_it_is_paid() {
    let limiter = one(Arc::new(MemoryStore::new()), TokenBucket::per_minute(60));
    let _ = limiter.debit("ann", 90).await.unwrap();
    let denied = limiter
        .acquire("ann", Duration::from_secs(30))
        .await
        .unwrap();
    assert!(!denied.is_allowed());
    let started = tokio::time::Instant::now();
    let permit = limiter
        .acquire("ann", Duration::from_secs(32))
        .await
        .unwrap();
    assert!(permit.is_allowed());
    assert!(started.elapsed() >= Duration::from_secs(30));
}

/// In a full store, newcomers share a bucket, which must not get into debt.
#[tokio::test]
async fn a_debit_of_a_newcomer_to_a_full_store_locks_out_no_others() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().capacity(1).clock(clock.clone());
    let limiter = one(Arc::new(store.build()), TokenBucket::per_minute(60));
    for caller in 0..100_u64 {
        let _ = limiter.check(caller).await.unwrap();
    }
    let debit = limiter.debit("newcomer", 1_000_000).await.unwrap();
    assert!(debit.charged() <= 60);
    assert!(debit.uncharged() >= 999_940);
    clock.advance(Duration::from_secs(1));
    assert!(limiter.check("other").await.unwrap().is_allowed());
}
