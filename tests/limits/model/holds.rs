//! Units that requests hold: Lua against the arithmetic, under one virtual clock.

use tower_throttle::testing;

use crate::support::prelude::*;

const STEPS: u64 = 15_000;

#[tokio::test]
async fn redis_and_memory_hold_settle_renew_and_lapse_alike() {
    let mut random = Random::new();
    let server = RedisServer::start();
    // A denial of before a step back holds again once the clock is past it, while the model has
    // shortened the debt: so no walk has both.
    for (repeats_denials, steps_back) in [(false, false), (true, false), (false, true)] {
        let seed = random.below(u64::MAX);
        let passed = testing::holds_conformance(seed, walks(STEPS) as usize, steps_back, |clock| {
            server.command(&["FLUSHALL"]);
            let store = patient()
                .clock(clock)
                // For as long as denials may be repeated, or not at all.
                .denial_cache_ttl(Duration::from_secs(if repeats_denials { 60 } else { 0 }));
            store.connect(&server.url()).expect("a store")
        });
        passed.await.unwrap_or_else(|difference| {
            panic!("repeats {repeats_denials}, steps back {steps_back}: {difference}")
        });
        server.assert_all_keys_expire();
    }
}
