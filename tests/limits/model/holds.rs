//! Units that requests hold: Lua against the arithmetic, under one virtual clock.

use std::time::Duration;

use tower_throttle::{RedisStore, testing};

use crate::support::{RedisServer, random::Random};

/// Steps in a run of a few seconds.
const STEPS: usize = 20_000;
const WALKS: u64 = 6;

#[tokio::test]
async fn redis_and_memory_hold_settle_renew_and_lapse_alike() {
    let mut random = Random::new();
    let server = RedisServer::start();
    for walk in 0..WALKS {
        let seed = random.below(u64::MAX);
        let passed = testing::holds_conformance(seed, STEPS, walk > 0, |clock| {
            server.command(&["FLUSHALL"]);
            let store = RedisStore::builder()
                .clock(clock)
                .timeout(crate::support::DEADLINE)
                // Half of the walks also repeat denials, for as long as they may be repeated.
                .denial_cache_ttl(Duration::from_secs(60 * (walk % 2)));
            store.connect(&server.url()).expect("a store")
        });
        passed
            .await
            .unwrap_or_else(|difference| panic!("walk {walk}: {difference}"));
        server.assert_all_keys_expire();
    }
}
