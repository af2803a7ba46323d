//! Many callers of whom one process holds units.

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
