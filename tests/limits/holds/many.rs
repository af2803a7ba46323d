//! Many callers of whom one process holds units.

use tokio::time::Instant;
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use super::{LIFETIME, day, tokens};
use crate::support::prelude::*;

/// All extensions of a process are due within a short time, and take the server longer than a check
/// may wait.
#[tokio::test(start_paused = true)]
async fn three_thousand_callers_who_hold_at_a_time_lose_none() {
    const CALLERS: u64 = 3_000;
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_millis(2));
    redis.set_service_time(Duration::from_micros(200), Duration::from_micros(50));
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let policy = tokens(day()).on_store_failure(OnStoreFailure::Deny);
    let limiter = Limiter::new(store, policy);
    let mut held = Vec::new();
    for callers in (0..CALLERS).collect::<Vec<_>>().chunks(200) {
        let reserved = callers.iter().map(|caller| {
            let (limiter, caller) = (limiter.clone(), *caller);
            async move { limiter.reserve(caller, 7).await }
        });
        for reserved in JoinSet::from_iter(reserved).join_all().await {
            let reserved = reserved.expect("a decision");
            assert!(reserved.is_allowed());
            held.push(reserved);
        }
    }
    tokio::time::sleep(LIFETIME * 6).await;
    let released = held.into_iter().map(|held| held.release());
    for settled in JoinSet::from_iter(released).join_all().await {
        assert_eq!(settled.expect("a settlement").uncharged(), 0);
    }
    let settlements = limiter.metrics().store.settlements;
    let found = (settlements.released, settlements.total());
    assert_eq!(found, (CALLERS, CALLERS));
    for caller in 0..CALLERS {
        assert_eq!(left(&limiter, caller).await, 100, "caller {caller}");
    }
}

/// Nothing else is asked, so no other call has the reply that would end the wait.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_settlement_holds_up_others_for_a_fifth_of_a_second() {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let policy = tokens(day()).on_store_failure(OnStoreFailure::Deny);
    let limiter = Limiter::new(store, policy);
    let mut held = Vec::new();
    for caller in 0..20_u64 {
        held.push(limiter.reserve(caller, 7).await.expect("units"));
    }
    let mut settled = held.into_iter().map(|held| held.settle(7));
    // The reply to the first comes after all deadlines.
    redis.set_delay(Duration::from_secs(9));
    let lost = tokio::spawn(settled.next().expect("a hold"));
    tokio::time::sleep(ms(10)).await;
    redis.set_delay(Duration::ZERO);
    let begin = Instant::now();
    for settled in JoinSet::from_iter(settled).join_all().await {
        assert_eq!(settled.expect("a settlement").charged(), 7);
    }
    assert!(begin.elapsed() < ms(250), "{:?}", begin.elapsed());
    lost.await.expect("no panic").expect_err("no reply");
}
