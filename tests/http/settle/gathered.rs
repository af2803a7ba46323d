//! Settlements that no caller waits for, on their way to a store far away.

use std::time::Duration;

use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Decision, OnStoreFailure, Outcome, Penalty, Policy, RateLimitLayer, RedisStore, RequestHead,
    Settle, Source, TokenBucket, key, settle, testing::SimulatedRedis,
};

use super::as_asked;
use crate::support::web::get;

fn layer_of(redis: &SimulatedRedis, policy: Policy) -> RateLimitLayer {
    let store = RedisStore::builder().simulated(redis).expect("a store");
    let layer = RateLimitLayer::builder().store(store).policy(policy);
    layer.decision_in_extensions().build().expect("a layer")
}

/// Sends a request of this caller, and returns the decision about it.
async fn ask(layer: &RateLimitLayer, caller: u64, status: u16) -> Decision {
    let request = get([("caller", caller), ("answer", status.into())]);
    let response = layer.layer(service_fn(as_asked)).oneshot(request).await;
    let response = response.expect("a response");
    let decision = response.extensions().get::<Decision>();
    decision.cloned().expect("a decision")
}

/// Returns how many units a caller has left.
async fn left(layer: &RateLimitLayer, caller: u64) -> u64 {
    let request = get([("caller", caller)]);
    let buckets = layer.buckets(&RequestHead::from(&request)).expect("a key");
    let decision = buckets.peek().await.expect("a decision");
    decision.policies().next().expect("a policy").remaining()
}

#[tokio::test(start_paused = true)]
async fn settlements_of_one_bucket_are_charged_together_within_20_milliseconds() {
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_millis(1));
    let tokens = Policy::new("tokens", TokenBucket::without_refill(10_000))
        .key(key::header("caller"))
        .cost(10)
        .settle_by(|outcome: &Outcome<'_>| match outcome.status() {
            Some(status) if status.is_success() => Settle::Units(3),
            Some(_) => Settle::Units(15),
            None => Settle::Full,
        })
        .max_debt(100);
    let layer = layer_of(&redis, tokens);
    assert!(ask(&layer, 1, 200).await.is_allowed());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(left(&layer, 1).await, 9_997);
    let before = redis.served();
    for (number, status) in (0..50).map(|number| (number, [200, 500][number % 2])) {
        assert!(ask(&layer, 1, status).await.is_allowed(), "{number}");
    }
    sleep(Duration::from_millis(20)).await;
    let spent = redis.served().decisions - before.decisions;
    assert_eq!(left(&layer, 1).await, 9_997 - 25 * 3 - 25 * 15);
    // Each check took 2 ms, and each 10 ms one settlement was sent.
    assert!(spent <= 50 + 12, "{spent}");
    let settlements = layer.metrics().store.settlements;
    assert_eq!((settlements.partial, settlements.charged), (26, 25));
}

/// A server that is asked for three times as much as it can do: checks are decided here, and each
/// strike of a request that it admitted arrives.
#[tokio::test(start_paused = true)]
async fn strikes_arrive_in_the_flood_that_they_are_about() {
    const STRIKES: u64 = 1_000_000;
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_millis(1));
    let scans = Policy::new("scans", Penalty::after(STRIKES))
        .key(key::header("caller"))
        .settle_by(settle::status([404]))
        .on_store_failure(OnStoreFailure::Allow);
    let layer = layer_of(&redis, scans);
    assert!(ask(&layer, 0, 200).await.is_allowed());
    redis.set_service_time(Duration::from_micros(100), Duration::from_micros(100));
    let mut requests = JoinSet::new();
    for number in 0..6_000 {
        let layer = layer.clone();
        requests.spawn(async move { ask(&layer, number % 100, 404).await });
        if number % 15 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let decisions = requests.join_all().await;
    let of = |source| {
        let decisions = decisions.iter();
        decisions
            .filter(|decision| decision.source() == source)
            .count() as u64
    };
    let (decided, failed) = (of(Source::Store), of(Source::StoreFailure));
    assert!(decided > 0 && failed > decided, "{decided}, {failed}");
    sleep(Duration::from_secs(3)).await;
    let mut strikes = 0;
    for caller in 0..100 {
        strikes += STRIKES - left(&layer, caller).await;
    }
    assert_eq!(strikes, decided);
    assert_eq!(layer.metrics().store.settlements.lost, 0);
}
