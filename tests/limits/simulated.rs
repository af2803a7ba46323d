//! A Redis that is simulated in this process.

use tokio::time::{Instant, sleep};
use tower_throttle::{
    RedisStore,
    testing::{self, SimulatedRedis},
};

use crate::support::prelude::*;

/// Returns a store that asks the server for each check.
pub(super) fn uncached(redis: &SimulatedRedis) -> RedisStore {
    let builder = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
    builder.simulated(redis).expect("a store")
}

fn limiter(redis: &SimulatedRedis, quota: TokenBucket) -> Limiter {
    let policy = Policy::new("api", quota).on_store_failure(OnStoreFailure::Deny);
    Limiter::new(uncached(redis), policy)
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
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (began, waited) = (Instant::now(), Arc::clone(&waits));
    let redis = SimulatedRedis::new().with_timer(move |until| {
        waited.lock().expect("a list").push(until - began);
        tokio::time::sleep_until(until)
    });
    let limiter = limiter(&redis, TokenBucket::per_day(1_000));
    let _ = check(&limiter, "ann").await;
    assert_eq!(began.elapsed(), Duration::ZERO);

    redis.set_delay(ms(3));
    redis.set_service_time(ms(4), ms(5));
    let decision = check(&limiter, "ann").await;
    assert_eq!(began.elapsed(), ms(3 + 4 + 5 + 3));
    let decided_at = Duration::from_micros(decided_at_us(&decision));
    assert_eq!(decided_at, Duration::from_secs(1_767_225_600) + ms(3));
    assert_eq!(redis.served().busy, ms(9));
    // A custom timer is used for each.
    let waits = waits.lock().expect("a list");
    assert!(waits.ends_with(&[ms(3), ms(15)]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_processes_share_one_server_thread() {
    let redis = SimulatedRedis::new();
    redis.set_service_time(ms(2), ms(1));
    let began = Instant::now();
    let quota = TokenBucket::without_refill(3);
    let processes = [(); 5].map(|()| limiter(&redis.over_another_network(), quota));
    let answered = processes.map(|limiter| {
        tokio::spawn(async move {
            let decision = check(&limiter, "ann").await;
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
    redis.set_delay(ms(5));
    let limiter = limiter(&redis, TokenBucket::without_refill(6));
    let checks = (0..20).map(|_| {
        let limiter = limiter.clone();
        async move { check(&limiter, "ann").await.is_allowed() }
    });
    let all = JoinSet::from_iter(checks).join_all().await;
    assert_eq!(all.iter().filter(|is_allowed| **is_allowed).count(), 6);
    let served = redis.served();
    assert_eq!(served.checks, 20);
    assert!(served.calls < 8, "{served:?}");
    assert_eq!(served.decisions, served.calls, "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_checks_fail_and_late_checks_are_charged() {
    let redis = SimulatedRedis::new();
    let quota = TokenBucket::without_refill(3);
    let here = limiter(&redis, quota);
    let elsewhere = limiter(&redis.over_another_network(), quota);

    redis.set_connected(false);
    let error = here.check("ann").await.expect_err("no connection");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(check(&elsewhere, "ann").await.is_allowed());

    redis.set_connected(true);
    redis.set_delay(ms(60));
    let began = Instant::now();
    let error = here.check("ann").await.expect_err("too far away");
    assert!(error.is_timeout(), "{error:?}");
    assert!(began.elapsed() <= ms(51));
    sleep(ms(20)).await;
    assert_eq!(left(&elsewhere, "ann").await, 1, "two were taken");
}

#[tokio::test(start_paused = true)]
async fn cached_denials_follow_the_time_of_the_runtime() {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let limiter = Limiter::new(store, TokenBucket::new(1, ms(400)));
    for (sleeps, is_allowed, source) in [
        (0, true, Source::Store),
        (0, false, Source::Store),
        (0, false, Source::Cache),
        (390, false, Source::Cache),
        (11, true, Source::Store),
    ] {
        sleep(ms(sleeps)).await;
        let decision = check(&limiter, "ann").await;
        assert_eq!(
            (decision.is_allowed(), decision.source()),
            (is_allowed, source)
        );
    }
}

/// Also if this process knows of the denial.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_tokens_of_a_policy_that_holds() {
    for ttl in [Duration::ZERO, ms(1_000)] {
        let builder = RedisStore::builder().denial_cache_ttl(ttl);
        let store = builder.simulated(&SimulatedRedis::new()).expect("a store");
        let tokens = Policy::new("tokens", TokenBucket::per_second(10)).hold_for(ms(60_000));
        let limiter = Limiter::new(store, tokens.on_store_failure(OnStoreFailure::Deny));
        for (units, is_allowed) in [(10, true), (9, false)] {
            let decision = limiter.check_n("ann", units).await.expect("a decision");
            assert_eq!(decision.is_allowed(), is_allowed);
        }
        let permit = limiter.acquire_n("ann", 9, ms(60_000)).await;
        assert!(permit.expect("a decision").is_allowed(), "{ttl:?}");
    }
}
