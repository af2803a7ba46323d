//! Settlements that no caller waits for, on their way to a store far away.

use tokio::time::{Instant, sleep};
use tower_throttle::testing::SimulatedRedis;

use super::as_asked;
use crate::prelude::*;

fn layer_of(redis: &SimulatedRedis, policy: Policy) -> RateLimitLayer {
    layer_with(redis, policy, Duration::from_millis(50))
}

fn layer_with(redis: &SimulatedRedis, policy: Policy, timeout: Duration) -> RateLimitLayer {
    let store = hasty().timeout(timeout);
    let store = store.simulated(redis).expect("a store");
    let layer = RateLimitLayer::builder().store(store).policy(policy);
    layer.decision_in_extensions().build().expect("a layer")
}

async fn ask(layer: &RateLimitLayer, caller: u64, status: u16) -> Decision {
    let request = get([("caller", caller), ("answer", status.into())]);
    let response = layer.layer(service_fn(as_asked)).oneshot(request).await;
    let response = response.expect("a response");
    let decision = response.extensions().get::<Decision>();
    decision.cloned().expect("a decision")
}

async fn left(layer: &RateLimitLayer, caller: u64) -> u64 {
    let request = get([("caller", caller)]);
    let buckets = buckets_of(layer, &request);
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

/// Whatever the requests used: less than they held, nothing, or more.
#[tokio::test(start_paused = true)]
async fn a_burst_of_settlements_is_charged_as_one_by_one() {
    const ROOM: u64 = 1_000_000;
    let mut random = Random::new();
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_millis(1));
    let tokens = Policy::new("tokens", TokenBucket::without_refill(ROOM))
        .key(key::header("caller"))
        .cost(10)
        .settle_by(|outcome: &Outcome<'_>| {
            let used = outcome.status().map(|status| u64::from(status.as_u16()));
            Settle::Units(used.expect("a status") - 200)
        });
    let layer = layer_of(&redis, tokens);
    let (mut used, mut expected) = ([0; 5], [0; 3]);
    for _ in 0..50 {
        let mut requests = JoinSet::new();
        for _ in 0..random.below(60) {
            let (layer, caller) = (layer.clone(), random.below(5));
            let units = random.below(3) * random.below(10);
            used[caller as usize] += units;
            expected[[0, 1, 2][usize::from(units > 0) + usize::from(units >= 10)]] += 1;
            requests.spawn(async move { ask(&layer, caller, 200 + units as u16).await });
        }
        let decisions = requests.join_all().await;
        assert!(decisions.iter().all(Decision::is_allowed));
        sleep(Duration::from_millis(random.below(25))).await;
    }
    sleep(Duration::from_millis(20)).await;
    for (caller, used) in (0..).zip(used) {
        assert_eq!(left(&layer, caller).await, ROOM - used, "{caller}");
    }
    let settlements = layer.metrics().store.settlements;
    let (released, partial) = (settlements.released, settlements.partial);
    assert_eq!([released, partial, settlements.charged], expected);
    assert_eq!(settlements.total(), expected.iter().sum::<u64>());
}

#[test]
fn a_runtime_that_stands_still_delays_no_settlement_of_another() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = SimulatedRedis::new();
    let tokens = Policy::new("tokens", TokenBucket::without_refill(1_000))
        .key(key::header("caller"))
        .cost(10)
        .settle_by(|_: &Outcome<'_>| Settle::Release);
    let layer = runtime.block_on(async { layer_of(&redis, tokens) });
    let still = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let still = still.expect("a runtime");
    assert!(still.block_on(ask(&layer, 1, 200)).is_allowed());
    runtime.block_on(async {
        assert!(ask(&layer, 2, 200).await.is_allowed());
        eventually_async("the release", async || left(&layer, 2).await == 1_000).await;
        assert_eq!(left(&layer, 1).await, 990, "it waits with its runtime");
    });
    drop(still);
}

/// Its clients ask again as soon as they are answered, so the server is never idle.
#[tokio::test(start_paused = true)]
async fn a_server_at_its_limit_gets_each_settlement() {
    const IN_FLIGHT: u64 = 256;
    let redis = SimulatedRedis::new();
    redis.set_delay(Duration::from_micros(100));
    redis.set_service_time(Duration::from_millis(1), Duration::from_micros(50));
    let tokens = Policy::new("tokens", TokenBucket::without_refill(1_000))
        .key(key::header("caller"))
        .settle_by(|_: &Outcome<'_>| Settle::Full);
    // A call takes up to 40 ms.
    let layer = layer_with(&redis, tokens, Duration::from_millis(500));
    let end = Instant::now() + Duration::from_secs(4);
    let clients = (0..IN_FLIGHT).map(|client| {
        let layer = layer.clone();
        async move {
            let mut asked = 0;
            while Instant::now() < end {
                let decision = ask(&layer, client + IN_FLIGHT * (asked % 50), 200).await;
                assert_eq!(decision.source(), Source::Store);
                asked += 1;
                let metrics = tokio::runtime::Handle::current().metrics();
                assert!(metrics.num_alive_tasks() < 300, "one for each");
            }
            asked
        }
    });
    let asked = clients.collect::<JoinSet<_>>().join_all().await;
    let asked = asked.into_iter().sum::<u64>();
    sleep(Duration::from_millis(200)).await;
    let settlements = layer.metrics().store.settlements;
    assert_eq!((settlements.charged, settlements.lost), (asked, 0));
    assert!(asked > 10_000, "{asked}");
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
        let of_it = |decision: &&Decision| decision.source() == source;
        decisions.iter().filter(of_it).count() as u64
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
