//! What layers and limiters report of their store: on a simulated server, in paused time.

use tokio::{task::yield_now, time::sleep};
use tower_throttle::{
    RedisStore,
    metrics::{self, Histogram, Snapshot, StoreFailures, StoreMetrics},
    testing::SimulatedRedis,
};

use super::simulated::uncached;
use crate::support::prelude::*;
use crate::support::web::Down;

/// Returns a limiter that returns the store's errors.
fn denying(store: impl Store) -> Limiter {
    let policy = Policy::new("api", TokenBucket::per_day(1_000_000));
    Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny))
}

fn of(limiter: &Limiter) -> StoreMetrics {
    limiter.metrics().store
}

/// Returns the counts of a histogram by its bounds, without empty ranges.
fn filled(histogram: Option<&Histogram>) -> Vec<(f64, u64)> {
    let histogram = histogram.expect("a histogram");
    let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
    let ranges = bounds.zip(histogram.counts.iter().copied());
    ranges.filter(|(_, count)| *count > 0).collect()
}

fn failures(change: impl FnOnce(&mut StoreFailures)) -> StoreFailures {
    let mut failures = StoreFailures::default();
    change(&mut failures);
    failures
}

/// Returns the lines of the text that start so, without that.
fn lines<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, start: &str) -> Vec<String> {
    let text = metrics::to_prometheus(snapshots);
    let lines = text.lines().filter_map(|line| line.strip_prefix(start));
    lines.map(str::to_owned).collect()
}

const CALLS: &str = "tower_throttle_store_call_seconds_count";

#[tokio::test(start_paused = true)]
async fn calls_and_their_checks_are_those_that_the_server_served() {
    let redis = SimulatedRedis::new();
    redis.set_delay(ms(2));
    let limiter = denying(uncached(&redis));
    let _ = check(&limiter, "first").await;
    assert_eq!(filled(of(&limiter).call_seconds.as_ref()), [(0.005, 1)]);
    assert_eq!(filled(of(&limiter).checks_per_call.as_ref()), [(1.0, 1)]);

    redis.set_delay(ms(10));
    let tasks = (0..40_u64).map(|caller| {
        let limiter = limiter.clone();
        async move { check(&limiter, caller).await.is_allowed() }
    });
    let tasks = JoinSet::from_iter(tasks);
    yield_now().await;
    assert_eq!(of(&limiter).in_flight, Some(40));
    assert!(tasks.join_all().await.into_iter().all(|it| it));
    // A refund is a call, too.
    limiter.credit("first", 1).await.expect("refunded");

    let (found, served) = (of(&limiter), redis.served());
    assert_eq!(served.checks, 42);
    assert!(served.calls < 20, "{served:?}");
    let calls = found.call_seconds.expect("a histogram");
    let later = served.calls - 1;
    assert_eq!(filled(Some(&calls)), [(0.005, 1), (0.025, later)]);
    let seconds = 0.004 + 0.020 * later as f64;
    assert!((calls.sum - seconds).abs() < 1e-9, "{calls:?}");
    let checks = found.checks_per_call.expect("a histogram");
    assert_eq!(checks.count(), served.calls);
    assert_eq!(checks.sum, served.checks as f64);
    assert_eq!((&*found.name, found.in_flight), ("redis", Some(0)));
    assert_eq!((found.failures.total(), found.is_up), (0, true));
    // In the text, a histogram counts up to each bound.
    let buckets = "tower_throttle_store_call_seconds_bucket{store=\"redis\",le=\"";
    let up_to = |bound: &str| match bound {
        "0.0001" | "0.00025" | "0.0005" | "0.001" | "0.0025" => 0,
        "0.005" | "0.01" => 1,
        _ => served.calls,
    };
    let buckets = lines([&limiter.metrics()], buckets);
    for bucket in &buckets {
        let (bound, count) = bucket.split_once("\"} ").expect("a count");
        assert_eq!(count, up_to(bound).to_string(), "{bound}");
    }
    assert_eq!(buckets.len(), 14);
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_kind_and_the_store_comes_back_up() {
    let redis = SimulatedRedis::new();
    let limiter = denying(uncached(&redis));
    let _ = check(&limiter, "ann").await;
    let fail = async |times| {
        for _ in 0..times {
            limiter.check("ann").await.expect_err("a failure");
        }
        of(&limiter)
    };
    redis.set_connected(false);
    let found = fail(3).await;
    assert_eq!(found.failures, failures(|kinds| kinds.not_connected = 3));
    assert_eq!((found.is_up, found.breakers_open), (false, Some(0)));

    // Five are late, and the breaker is open for two.
    redis.set_connected(true);
    redis.set_delay(ms(30));
    let found = fail(7).await;
    let expected = failures(|kinds| {
        (kinds.not_connected, kinds.timeout, kinds.not_sent) = (3, 5, 2);
    });
    assert_eq!(found.failures, expected);
    assert_eq!((found.is_up, found.breakers_open), (false, Some(1)));
    assert!(filled(found.call_seconds.as_ref()).contains(&(0.05, 5)));

    redis.set_delay(Duration::ZERO);
    for (pause, is_up) in [(100, false), (5_000, true)] {
        sleep(ms(pause)).await;
        let _ = check(&limiter, "ann").await;
        let found = of(&limiter);
        assert_eq!((found.is_up, found.breakers_open), (is_up, Some(0)));
        assert_eq!(found.failures, expected, "none since then");
    }
}

/// A wrapper does not hide the numbers of its store, and a clone is the same.
#[tokio::test(start_paused = true)]
async fn limiters_on_one_store_share_its_numbers_and_export_them_once() {
    let redis = SimulatedRedis::new();
    let shared = uncached(&redis);
    #[derive(Debug)]
    struct Wrapper(RedisStore);
    impl Store for Wrapper {
        fn check(&self, check: &Check<'_>) -> Answer<Decision> {
            self.0.check(check)
        }
        fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
            self.0.reset(charges)
        }
        fn fallback(&self) -> Option<Fallback> {
            self.0.fallback()
        }
    }
    let (one, other) = (denying(shared.clone()), denying(shared.clone()));
    let wrapper = denying(Wrapper(shared));
    for limiter in [&one, &other, &wrapper] {
        let _ = check(limiter, "ann").await;
    }
    assert_eq!(of(&one), of(&other));
    assert_eq!(of(&wrapper).name, "custom");
    let [one, other, wrapper] = [one, other, wrapper].map(|limiter| limiter.metrics());
    let alone = lines([&one], "tower_throttle_store_");
    for all in [
        [&one, &other, &one.clone()],
        [&one, &wrapper, &other],
        [&wrapper, &one, &wrapper],
    ] {
        assert_eq!(lines(all, "tower_throttle_store_"), alone);
    }
    assert_eq!(lines([&one], CALLS), ["{store=\"redis\"} 3"]);

    // Another store of the same name is added; a name of its own sets it apart.
    let third = denying(uncached(&redis));
    let _ = check(&third, "ann").await;
    let third = third.metrics();
    assert_eq!(lines([&one, &third], CALLS), ["{store=\"redis\"} 4"]);
    let named = RedisStore::builder().name("sessions").simulated(&redis);
    let named = denying(named.expect("a store")).metrics();
    let expected = ["{store=\"redis\"} 3", "{store=\"sessions\"} 0"];
    assert_eq!(lines([&one, &named], CALLS), expected);
}

/// A store of the application, whose `metrics` panics while a switch is on.
#[derive(Clone, Debug)]
struct Buggy {
    store: RedisStore,
    panics: Arc<AtomicBool>,
}

impl Store for Buggy {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.store.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.store.reset(charges)
    }

    fn fallback(&self) -> Option<Fallback> {
        self.store.fallback()
    }

    fn metrics(&self) -> StoreMetrics {
        assert!(!self.panics.load(Ordering::Relaxed), "a bug");
        let mut numbers = self.store.metrics();
        numbers.name = "mine".to_owned();
        numbers
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_numbers_panic_leaves_what_its_limiters_count() {
    let redis = SimulatedRedis::new();
    let (store, panics) = (uncached(&redis), Arc::<AtomicBool>::default());
    let buggy = Buggy {
        store,
        panics: Arc::clone(&panics),
    };
    // Both limiters have the same store.
    let limiters = [denying(buggy.clone()), denying(buggy)];
    let calls = |limiter| filled(of(limiter).call_seconds.as_ref())[0].1;
    let _ = check(&limiters[0], "ann").await;
    assert_eq!(calls(&limiters[0]), 1);
    panics.store(true, Ordering::Relaxed);
    let _ = check(&limiters[0], "ann").await;
    redis.set_connected(false);
    limiters[0].check("ann").await.expect_err("no connection");
    for limiter in &limiters {
        let found = of(limiter);
        assert_eq!(found.name, "mine");
        assert_eq!((found.call_seconds, found.in_flight), (None, None));
        assert_eq!((found.failures.total(), found.is_up), (1, false));
    }
    panics.store(false, Ordering::Relaxed);
    // The check without a connection was not sent.
    assert_eq!(calls(&limiters[1]), 2);
    assert_eq!(of(&limiters[1]).in_flight, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_store_of_ones_own_has_failures_and_its_guard_a_breaker() {
    let plain = denying(Down);
    plain.check("ann").await.expect_err("it fails");
    let found = of(&plain);
    assert_eq!((&*found.name, found.breakers_open), ("custom", None));
    assert_eq!(found.failures, failures(|kinds| kinds.unavailable = 1));
    assert!(!found.is_up);

    let guarded = denying(Arc::new(Guarded::new(Down)));
    assert_eq!(of(&guarded).breakers_open, Some(0));
    for _ in 0..7 {
        guarded.check("ann").await.expect_err("it fails");
    }
    let found = of(&guarded);
    assert_eq!((&*found.name, found.breakers_open), ("custom", Some(1)));
    let expected = failures(|kinds| (kinds.unavailable, kinds.not_sent) = (5, 2));
    assert_eq!(found.failures, expected);

    // An operation that no store supports is a mistake of the caller, and no failure.
    let permits = Limiter::new(Down, Concurrency::new(1));
    let error = permits.check("ann").await.expect_err("it needs `acquire`");
    assert!(error.is_unsupported());
    let found = of(&permits);
    assert_eq!((found.failures.total(), found.is_up), (0, true));
}

#[tokio::test(start_paused = true)]
async fn gauges_follow_what_is_kept_and_held() {
    let memory = Limiter::new(MemoryStore::new(), Concurrency::new(5));
    let one = acquire(&memory, "ann", ms(0)).await;
    let three = memory.acquire_n("bob", 3, ms(0)).await;
    let found = of(&memory);
    assert_eq!((&*found.name, found.held_units), ("memory", 4));
    assert_eq!((found.memory_buckets, found.call_seconds), (Some(2), None));
    drop((one, three));
    assert_eq!(of(&memory).held_units, 0);

    // Permits and buckets of this process, while the store fails.
    let redis = SimulatedRedis::new();
    redis.set_connected(false);
    let running = Policy::new("running", Concurrency::new(5));
    let rate = Policy::new("rate", TokenBucket::per_day(5));
    let local = limiter_of(uncached(&redis), [running, rate]);
    assert_eq!(of(&local).local_buckets, 0);
    let permit = acquire(&local, "ann", ms(0)).await;
    assert!(permit.is_allowed());
    assert_eq!((of(&local).held_units, of(&local).local_buckets), (1, 2));
    drop(permit);
    assert_eq!(of(&local).held_units, 0);

    // Cached denials, until they end.
    let redis = SimulatedRedis::new();
    let cached = hasty().denial_cache_ttl(ms(400));
    let cached = cached.simulated(&redis).expect("a store");
    let limiter = Limiter::new(cached, FixedWindow::per_day(1));
    for caller in ["ann", "bob", "ann", "bob", "ann"] {
        let _ = check(&limiter, caller).await;
    }
    assert_eq!(redis.served().checks, 4, "one denial was repeated");
    assert_eq!(of(&limiter).cached_denials, Some(2));
    sleep(ms(500)).await;
    assert_eq!(of(&limiter).cached_denials, Some(0));

    // Leased units, until they are back.
    let quota = TokenBucket::per_second(100_000).burst(100_000);
    let limiter = Limiter::new(uncached(&redis), Policy::new("hot", quota).lease());
    let (before, mut most) = (redis.served().checks, 0);
    for _ in 0..2_000 {
        let _ = check(&limiter, "ann").await;
        yield_now().await;
        most = most.max(of(&limiter).leased_units.expect("a store that leases"));
    }
    assert!(most > 0 && redis.served().checks < before + 2_000);
    sleep(ms(2_000)).await;
    assert_eq!(of(&limiter).leased_units, Some(0));
}

#[tokio::test(start_paused = true)]
async fn waits_are_counted_however_they_end() {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(1).burst(1));
    assert!(acquire(&limiter, "ann", ms(1_000)).await.is_allowed());
    assert_eq!(limiter.metrics().wait_seconds.count(), 0, "it did not wait");
    let [waits, leaves] = [(); 2].map(|()| come(&limiter, ms(10_000)));
    let counts = || {
        let found = limiter.metrics();
        (found.waiting, found.wait_seconds.count())
    };
    assert_eq!(counts(), (2, 0));
    drop(leaves);
    assert_eq!(counts(), (1, 1));
    assert!(waits.await.expect("a decision").is_allowed());
    assert_eq!(counts(), (0, 2));
    // The one that left did so at once, and the other waited for a second. Timers tick in
    // milliseconds.
    let waits = limiter.metrics().wait_seconds;
    assert!((1.0..1.01).contains(&waits.sum), "{waits:?}");
    assert_eq!(waits.counts.first(), Some(&1));
}
