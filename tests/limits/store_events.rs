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
        waited += ms(100);
        sleep(ms(100)).await;
    };
    assert_eq!(recovered, ["jobs: recovered"]);
    assert!(waited >= Duration::from_secs(5), "{waited:?}");

    // More checks at once than may wait.
    redis.set_delay(ms(10));
    let crowd = (0..30_u64).map(|caller| {
        let jobs = jobs.clone();
        async move { jobs.check(caller).await }
    });
    let crowd = JoinSet::from_iter(crowd).join_all().await;
    assert!(crowd.iter().filter(|check| check.is_err()).count() > 1);
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
