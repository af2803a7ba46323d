//! Look-ups while the store fails.

use super::{World, caller, only};
use crate::{FixedWindow, OnStoreFailure, Policy, Source, key};

fn policy(name: &str) -> Policy {
    Policy::new(name, FixedWindow::per_hour(10)).key(key::header("x-api-key"))
}

#[tokio::test(start_paused = true)]
async fn each_policy_says_what_decides_in_place_of_the_store() {
    let world = World::in_redis();
    let layer = world.layer([
        policy("local"),
        policy("share").on_store_failure(OnStoreFailure::share_of(2)),
        policy("allow").on_store_failure(OnStoreFailure::Allow),
        policy("deny").on_store_failure(OnStoreFailure::Deny),
        policy("shadow").shadow(),
    ]);
    let typed = caller(&["k1"]);
    for state in layer.inspect().look_up(&typed, None).await {
        assert_eq!(state.bucket.expect("a bucket").source, Source::Store);
    }
    world.redis.set_connected(false);
    let states = layer.inspect().look_up(&typed, None).await;
    for (state, capacity) in states.iter().zip([10, 5]) {
        let bucket = state.bucket.as_ref().expect("a bucket of this process");
        assert_eq!(
            (bucket.source, bucket.decision.capacity()),
            (Source::Local, capacity)
        );
    }
    let problems = states[2..]
        .iter()
        .map(|state| state.bucket.as_ref().expect_err("unknown"));
    let problems: Vec<_> = problems.collect();
    assert!(
        problems[0].contains("allows all requests meanwhile"),
        "{problems:?}"
    );
    assert!(problems[1].contains("connect"), "{problems:?}");
    // Nothing decides in place of the store for a policy that denies nothing.
    assert!(problems[2].contains("connect"), "{problems:?}");
    assert!(
        states
            .iter()
            .all(|state| state.fingerprint.is_some() && state.storage_key.is_some())
    );
    layer
        .inspect()
        .reset(&typed, None)
        .await
        .expect_err("nothing is reset");
    world.redis.set_connected(true);
    assert!(
        only(layer.inspect().look_up(&typed, Some("deny")).await)
            .bucket
            .is_ok()
    );
}
