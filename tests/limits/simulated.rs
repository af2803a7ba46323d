//! A Redis that is simulated in this process.

use tokio::time::{Instant, sleep};
use tower_throttle::{
    RedisStore,
    testing::{self, SimulatedRedis},
};

use crate::support::prelude::*;

fn store(redis: &SimulatedRedis) -> RedisStore {
    let builder = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
    builder.simulated(redis).expect("a store")
}

fn limiter(store: &RedisStore, quota: TokenBucket) -> Limiter {
    Limiter::builder()
        .store(store.clone())
        .policy(Policy::new("api", quota).on_store_failure(OnStoreFailure::Deny))
        .build()
        .expect("a limiter")
}

/// Not in paused time, because permits are renewed in the runtime's time.
#[tokio::test]
async fn the_simulated_redis_decides_as_the_memory_store_does() {
    let walked = testing::conformance(4711, 300, |clock| {
        let builder = RedisStore::builder().clock(clock);
        let builder = builder.denial_cache_ttl(Duration::ZERO);
        let redis = SimulatedRedis::new().with_timer(|_| std::future::ready(()));
        builder.simulated(&redis).expect("a store")
    });
    walked.await.expect("no difference");
}

#[tokio::test(start_paused = true)]
async fn a_check_takes_both_network_delays_and_the_service_time() {
    let redis = SimulatedRedis::new();
    let limiter = limiter(&store(&redis), TokenBucket::per_day(1_000));
    let near = Instant::now();
    let _ = limiter.check("ann").await.expect("a decision");
    assert_eq!(near.elapsed(), Duration::ZERO);

    redis.set_delay(Duration::from_millis(3));
    redis.set_service_time(Duration::from_millis(4), Duration::from_millis(5));
    let far = Instant::now();
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(far.elapsed(), Duration::from_millis(3 + 4 + 5 + 3));
    let decided_at = Duration::from_micros(decided_at_us(&decision));
    let began = Duration::from_secs(1_767_225_600);
    assert_eq!(decided_at, began + Duration::from_millis(3));
    assert_eq!(redis.served().busy, Duration::from_millis(9));
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_processes_share_one_server_thread() {
    let redis = SimulatedRedis::new();
    redis.set_service_time(Duration::from_millis(2), Duration::from_millis(1));
    let processes = [(); 5].map(|()| store(&redis.over_another_network()));
    let began = Instant::now();
    let answered = processes.map(|store| {
        let limiter = limiter(&store, TokenBucket::without_refill(3));
        tokio::spawn(async move {
            let decision = limiter.check("ann").await.expect("a decision");
            (decision.is_allowed(), began.elapsed().as_millis())
        })
    });
    let mut all = Vec::new();
    for answer in answered {
        all.push(answer.await.expect("an answer"));
    }
    assert_eq!(
        all,
        [(true, 3), (true, 6), (true, 9), (false, 12), (false, 15)]
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_checks_share_a_call_and_equal_checks_a_decision() {
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_millis(5));
    let limiter = limiter(&store(&redis), TokenBucket::without_refill(6));
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(
                async move { limiter.check("ann").await.expect("a decision").is_allowed() },
            )
        })
        .collect();
    let mut admitted = 0;
    for asked in asked {
        admitted += u64::from(asked.await.expect("an answer"));
    }
    assert_eq!(admitted, 6);
    let served = redis.served();
    assert_eq!(served.checks, 20);
    assert!(served.calls < 8, "{served:?}");
    assert_eq!(served.decisions, served.calls, "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_checks_fail_and_late_checks_are_charged() {
    let redis = SimulatedRedis::new();
    let here = store(&redis);
    let elsewhere = store(&redis.over_another_network());
    let quota = TokenBucket::without_refill(3);
    let (here, elsewhere) = (limiter(&here, quota), limiter(&elsewhere, quota));

    redis.set_connected(false);
    let error = here.check("ann").await.expect_err("no connection");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(
        elsewhere
            .check("ann")
            .await
            .expect("a decision")
            .is_allowed()
    );

    redis.set_connected(true);
    redis.set_delay(Duration::from_millis(60));
    let began = Instant::now();
    let error = here.check("ann").await.expect_err("too far away");
    assert!(error.is_timeout(), "{error:?}");
    assert!(began.elapsed() <= Duration::from_millis(51));
    sleep(Duration::from_millis(20)).await;
    let left = elsewhere.peek("ann").await.expect("a decision");
    let left: Vec<_> = left.policies().map(|policy| policy.remaining()).collect();
    assert_eq!(left, [1], "two were taken");
}

#[tokio::test(start_paused = true)]
async fn cached_denials_follow_the_time_of_the_runtime() {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let limiter = limiter(&store, TokenBucket::new(1, Duration::from_millis(400)));
    let ask = async |expected: (bool, Source)| {
        let decision = limiter.check("ann").await.expect("a decision");
        assert_eq!((decision.is_allowed(), decision.source()), expected);
    };
    ask((true, Source::Store)).await;
    ask((false, Source::Store)).await;
    ask((false, Source::Cache)).await;
    sleep(Duration::from_millis(390)).await;
    ask((false, Source::Cache)).await;
    sleep(Duration::from_millis(11)).await;
    ask((true, Source::Store)).await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_timer_is_used_for_each_network_delay() {
    let waits = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let waited = Arc::clone(&waits);
    let redis = SimulatedRedis::new().with_timer(move |until| {
        waited.lock().expect("a list").push(until - began);
        tokio::time::sleep_until(until)
    });
    redis.set_delay(Duration::from_millis(2));
    redis.set_service_time(Duration::from_micros(10), Duration::ZERO);
    let limiter = limiter(&store(&redis), TokenBucket::per_day(9));
    let _ = limiter.check("ann").await.expect("a decision");
    let expected = [2_000, 4_010].map(Duration::from_micros);
    assert_eq!(*waits.lock().expect("a list"), expected);
}

/// Also if this process knows of the denial.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_tokens_of_a_policy_that_holds() {
    for ttl in [Duration::ZERO, Duration::from_secs(1)] {
        let redis = SimulatedRedis::new();
        let builder = RedisStore::builder().denial_cache_ttl(ttl);
        let store = builder.simulated(&redis).expect("a store");
        let tokens = Policy::new("tokens", TokenBucket::per_second(10));
        let tokens = tokens.hold_for(Duration::from_secs(60));
        let limiter = Limiter::new(store, tokens.on_store_failure(OnStoreFailure::Deny));
        let taken = limiter.check_n("ann", 10).await.expect("a decision");
        assert!(taken.is_allowed());
        let denied = limiter.check_n("ann", 9).await.expect("a decision");
        assert!(!denied.is_allowed());
        let minute = Duration::from_secs(60);
        let permit = limiter.acquire_n("ann", 9, minute).await;
        assert!(permit.expect("a decision").is_allowed(), "{ttl:?}");
    }
}
