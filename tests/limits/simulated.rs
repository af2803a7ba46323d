//! A Redis that is simulated in this process.

use tokio::time::Instant;
use tower_throttle::{
    RedisStore,
    testing::{self, SimulatedRedis},
};

use crate::support::prelude::*;

/// Returns a store that asks the server for each check.
pub(super) fn uncached(redis: &SimulatedRedis) -> RedisStore {
    let builder = hasty().denial_cache_ttl(Duration::ZERO);
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
        let builder = patient().clock(clock);
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

/// Not even if smaller numbers have denied the caller meanwhile. It has the new burst, and no more.
#[tokio::test(start_paused = true)]
async fn what_the_old_numbers_have_refilled_at_once_is_forgotten() {
    let redis = SimulatedRedis::new();
    let [six, one] = [6, 1].map(|limit| {
        let bucket = TokenBucket::new(limit, Duration::from_secs(3));
        limiter(&redis, bucket.refill_at_once())
    });
    assert!(
        six.check_n("ann", 2)
            .await
            .expect("a decision")
            .is_allowed()
    );
    let denied = check(&one, "ann").await;
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(6)));
    tokio::time::sleep(ms(2_999)).await;
    assert!(!check(&one, "ann").await.is_allowed());
    tokio::time::sleep(ms(1)).await;
    for is_allowed in [true, false] {
        assert_eq!(check(&one, "ann").await.is_allowed(), is_allowed);
    }
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
    let expected = [(true, 3), (true, 6), (true, 9), (false, 12), (false, 15)];
    assert_eq!(all, expected);
}

/// Also if this process knows of the denial.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_tokens_of_a_policy_that_holds() {
    for ttl in [Duration::ZERO, ms(1_000)] {
        let builder = hasty().denial_cache_ttl(ttl);
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
