//! Observers of layers and limiters see each change of a store once, as the log does.

use tokio::time::sleep;
use tower_throttle::{
    RedisStore,
    metrics::{Observe, StoreEvent},
    testing::SimulatedRedis,
};

use crate::support::prelude::*;

/// Keeps a line for each event.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl Observe for Seen {
    fn store_changed(&self, limiter: &str, event: StoreEvent<'_>) {
        let line = match event {
            StoreEvent::Failed(error) if error.is_timeout() => "timeout",
            StoreEvent::Failed(error) if error.is_unavailable() => "unavailable",
            StoreEvent::LeftUndecided(error) if error.is_overloaded() => "overloaded",
            StoreEvent::Recovered => "recovered",
            other => panic!("{other:?}"),
        };
        let line = format!("{limiter}: {line}");
        self.0.lock().expect("no panic").push(line);
    }
}

impl Seen {
    fn take(&self) -> Vec<String> {
        let mut lines = std::mem::take(&mut *self.0.lock().expect("no panic"));
        lines.sort();
        lines
    }
}

const NOTHING: [&str; 0] = [];

fn limiter(name: &str, store: &RedisStore, seen: Option<&Arc<Seen>>) -> Limiter {
    let policy = Policy::new("api", TokenBucket::per_day(1_000_000));
    let builder = Limiter::builder().name(name).store(store.clone());
    let builder = builder.policy(policy.on_store_failure(OnStoreFailure::Deny));
    let builder = match seen {
        Some(seen) => builder.observe(Arc::clone(seen)),
        None => builder,
    };
    builder.build().expect("a limiter")
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_store_is_seen_once() {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().max_in_flight(8).simulated(&redis);
    let store = store.expect("a store");
    let seen = Arc::new(Seen::default());
    let jobs = limiter("jobs", &store, Some(&seen));
    let without = limiter("without", &store, None);
    assert!(jobs.check("ann").await.is_ok());
    assert_eq!(seen.take(), NOTHING);

    // A limiter without an observer finds the failure, and the observers on the store see it.
    redis.set_delay(Duration::from_secs(60));
    for _ in 0..3 {
        assert!(without.check("ann").await.is_err());
    }
    assert_eq!(seen.take(), ["jobs: timeout"]);
    redis.set_connected(false);
    for _ in 0..3 {
        assert!(jobs.check("ann").await.is_err());
    }
    assert_eq!(seen.take(), ["jobs: unavailable"]);

    redis.set_delay(Duration::ZERO);
    redis.set_connected(true);
    let mut waited = Duration::ZERO;
    let recovered = loop {
        let _ = jobs.check("ann").await;
        let found = seen.take();
        if !found.is_empty() {
            break found;
        }
        assert!(waited < Duration::from_secs(60), "it never recovers");
        waited += Duration::from_millis(100);
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(recovered, ["jobs: recovered"]);
    assert!(waited >= Duration::from_secs(5), "{waited:?}");

    // More checks at once than may wait.
    redis.set_delay(Duration::from_millis(10));
    let crowd = (0..30).map(|number| {
        let jobs = jobs.clone();
        tokio::spawn(async move { jobs.check(format!("caller-{number}")).await })
    });
    let mut denied = 0;
    for check in crowd.collect::<Vec<_>>() {
        denied += usize::from(check.await.expect("no panic").is_err());
    }
    assert!(denied > 1, "{denied}");
    assert_eq!(seen.take(), ["jobs: overloaded"]);
    assert!(jobs.metrics().store.is_up);
}

#[tokio::test(start_paused = true)]
async fn each_layer_and_limiter_on_a_store_is_told_while_it_lives() {
    let redis = SimulatedRedis::new();
    let another = SimulatedRedis::new();
    let connect = |redis| RedisStore::builder().simulated(redis).expect("a store");
    let (store, other) = (connect(&redis), connect(&another));
    let seen = Arc::new(Seen::default());
    let layer = || {
        let policy = Policy::new("web", TokenBucket::per_day(9)).key(key::global());
        let builder = RateLimitLayer::builder().name("web").policy(policy);
        let builder = builder.observe(Arc::clone(&seen));
        builder.build().expect("a layer")
    };
    // Another store has its own observers, and a layer leaves those of its former one.
    let moved = layer().store(store.clone()).store(other.clone());
    let _elsewhere = limiter("elsewhere", &other, Some(&seen));
    let web = layer().store(store.clone());
    let clone = web.clone();
    let jobs = limiter("jobs", &store, Some(&seen));
    drop(limiter("gone", &store, Some(&seen)));
    redis.set_connected(false);
    // The store of a layer decides later, so it is asked in a limiter.
    assert!(jobs.check("ann").await.is_err());
    assert_eq!(seen.take(), ["jobs: unavailable", "web: unavailable"]);
    drop((web, clone, moved));
}

/// A layer of shadow policies waits for no store, and its observer sees that it fails.
#[tokio::test(start_paused = true)]
async fn a_failure_of_a_shadow_check_is_seen() {
    let redis = SimulatedRedis::new();
    redis.set_connected(false);
    let seen = Arc::new(Seen::default());
    let new = Policy::new("new", TokenBucket::per_day(9)).key(key::global());
    let layer = RateLimitLayer::builder()
        .name("web")
        .store(RedisStore::builder().simulated(&redis).expect("a store"))
        .policy(new.shadow())
        .observe(Arc::clone(&seen))
        .build()
        .expect("a layer");
    assert_eq!(ask(&layer, plain()).status, 200);
    let is_seen = || async { !seen.0.lock().expect("no panic").is_empty() };
    eventually_async("the failure", is_seen).await;
    assert_eq!(seen.take(), ["web: unavailable"]);
}
