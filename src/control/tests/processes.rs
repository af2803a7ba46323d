//! Several processes on one simulated Redis.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{FIRST, made, quota};
use crate::{
    Limiter, Policy, RateLimitLayer, RedisStore, TokenBucket,
    control::{Control, Mode},
    store::Store,
    testing::SimulatedRedis,
};

fn process(redis: &SimulatedRedis) -> (RedisStore, Control) {
    let store = RedisStore::builder()
        .secret("s")
        .simulated(redis)
        .expect("a store");
    let control = store.control();
    (store, control)
}

/// Longer than any process waits between two looks.
const SOON: Duration = Duration::from_millis(1_300);

/// A layer holds the control, and the control the store.
#[tokio::test(start_paused = true)]
async fn clones_of_a_store_have_one_control_which_ends_with_its_last_user() {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let (one, other) = (store.control(), store.clone().control());
    made(one.set_mode("a", Mode::Off)).await;
    assert_eq!(other.entries().len(), 1);
    let held = Arc::downgrade(one.held());
    drop(store);
    other
        .set_mode("b", Mode::Off)
        .await
        .expect("the connections stay");
    drop((one, other));
    sleep(SOON).await;
    assert!(held.upgrade().is_none());
}

/// What it costs a server: one small command a second for each process.
#[tokio::test(start_paused = true)]
async fn a_look_is_no_script_call() {
    let redis = SimulatedRedis::new();
    let (_store, _control) = process(&redis);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(redis.served().calls, 0);
}

#[tokio::test(start_paused = true)]
async fn the_metrics_of_a_store_have_the_version_and_whether_something_is_wrong() {
    let redis = SimulatedRedis::new();
    let far = redis.over_another_network();
    let store = RedisStore::builder().simulated(&far).expect("a store");
    let numbers = || {
        let metrics = store.metrics();
        (metrics.control_version, metrics.control_problems)
    };
    assert_eq!(numbers(), (None, None));
    let control = store.control();
    assert_eq!(numbers(), (Some(0), Some(0)));
    made(control.set_mode("a", Mode::Off)).await;
    let version = Some(control.status().version);
    assert!(version >= Some(FIRST));
    assert_eq!(numbers(), (version, Some(0)));
    far.set_connected(false);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(numbers(), (version, Some(0)), "a short outage");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(numbers(), (version, Some(1)));
    far.set_connected(true);
    sleep(SOON).await;
    assert_eq!(numbers(), (version, Some(0)));
    drop(control);
    assert_eq!(numbers(), (None, None));

    let memory = crate::MemoryStore::new();
    assert_eq!(memory.metrics().control_version, None);
    let change = memory.control().set_mode("a", Mode::Off);
    change.await.expect("it is made");
    let version = memory.control().status().version;
    assert_eq!(memory.clone().metrics().control_version, Some(version));
}

/// A builder may be all that ever had it.
#[tokio::test(start_paused = true)]
async fn a_limiter_or_layer_follows_the_document_when_nothing_else_has_it() {
    let redis = SimulatedRedis::new();
    let (_one, one) = process(&redis);
    let store = RedisStore::builder().secret("s").simulated(&redis);
    let store = store.expect("a store");
    let plan = || Policy::new("plan", TokenBucket::per_second(2));
    let limiter = Limiter::builder()
        .store(store.clone())
        .policy(plan())
        .control(store.control())
        .build()
        .expect("a limiter");
    made(one.override_quota("plan", "ann", quota(5))).await;
    sleep(SOON).await;
    let decision = limiter.check("ann").await.expect("a decision");
    let capacities = decision.policies().map(|policy| policy.capacity());
    assert_eq!(capacities.collect::<Vec<_>>(), [5]);
    drop(limiter);
    assert_eq!(store.metrics().control_version, None, "nothing follows it");

    let layer = RateLimitLayer::builder()
        .store(store.clone())
        .policy(plan().shared())
        .control(store.control());
    let layer = layer.build().expect("a layer");
    assert_eq!(store.metrics().control_version, Some(0));
    drop(layer);
    assert_eq!(store.metrics().control_version, None, "nothing follows it");
}
