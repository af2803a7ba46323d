//! What layers and limiters report of their store: on a simulated server, in paused time.

use tokio::{task::yield_now, time::sleep};
use tower_throttle::{
    RedisStore,
    metrics::{self, Histogram, StoreFailures, StoreMetrics},
    testing::SimulatedRedis,
};

use crate::support::prelude::*;

fn store(redis: &SimulatedRedis) -> RedisStore {
    let builder = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
    builder.simulated(redis).expect("a store")
}

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

#[tokio::test(start_paused = true)]
async fn calls_and_their_checks_are_those_that_the_server_served() {
    let redis = SimulatedRedis::new();
    redis.set_delay(ms(2));
    let limiter = denying(store(&redis));
    let _ = limiter.check("first").await.expect("a decision");
    assert_eq!(filled(of(&limiter).call_seconds.as_ref()), [(0.005, 1)]);
    assert_eq!(filled(of(&limiter).checks_per_call.as_ref()), [(1.0, 1)]);

    redis.set_delay(ms(10));
    let tasks = (0..40).map(|number| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(format!("caller-{number}")).await })
    });
    let tasks: Vec<_> = tasks.collect();
    yield_now().await;
    assert_eq!(of(&limiter).in_flight, Some(40));
    for task in tasks {
        assert!(
            task.await
                .expect("no panic")
                .expect("a decision")
                .is_allowed()
        );
    }
    // A refund is a call, too.
    limiter.credit("first", 1).await.expect("given back");

    let (found, served) = (of(&limiter), redis.served());
    assert_eq!(served.checks, 42);
    assert!(served.calls < 20, "{served:?}");
    let calls = found.call_seconds.expect("a histogram");
    assert_eq!(calls.count(), served.calls);
    assert_eq!(
        filled(Some(&calls)),
        [(0.005, 1), (0.025, served.calls - 1)]
    );
    let seconds = 0.004 + 0.020 * (served.calls - 1) as f64;
    assert!((calls.sum - seconds).abs() < 1e-9, "{calls:?}");
    let checks = found.checks_per_call.expect("a histogram");
    assert_eq!(checks.count(), served.calls);
    assert_eq!(checks.sum, served.checks as f64);
    assert_eq!(found.in_flight, Some(0));
    assert_eq!(found.name, "redis");
    assert_eq!((found.failures.total(), found.is_up), (0, true));
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_kind_and_the_store_comes_back_up() {
    let redis = SimulatedRedis::new();
    let limiter = denying(store(&redis));
    let _ = limiter.check("ann").await.expect("a decision");

    redis.set_connected(false);
    for _ in 0..3 {
        limiter.check("ann").await.expect_err("no connection");
    }
    let found = of(&limiter);
    assert_eq!(found.failures, failures(|kinds| kinds.unavailable = 3));
    assert_eq!((found.is_up, found.breakers_open), (false, Some(0)));

    redis.set_connected(true);
    redis.set_delay(ms(30));
    for _ in 0..5 {
        let error = limiter.check("ann").await.expect_err("too late");
        assert!(error.is_timeout(), "{error}");
    }
    for _ in 0..2 {
        limiter.check("ann").await.expect_err("the breaker is open");
    }
    let found = of(&limiter);
    let expected = failures(|kinds| {
        (kinds.unavailable, kinds.timeout, kinds.not_sent) = (3, 5, 2);
    });
    assert_eq!(found.failures, expected);
    assert_eq!((found.is_up, found.breakers_open), (false, Some(1)));
    let late = (0.05, 5);
    assert!(
        filled(found.call_seconds.as_ref()).contains(&late),
        "{found:?}"
    );

    redis.set_delay(Duration::ZERO);
    sleep(ms(100)).await;
    let _ = limiter.check("ann").await.expect("the probe");
    let found = of(&limiter);
    assert_eq!((found.is_up, found.breakers_open), (false, Some(0)));
    sleep(Duration::from_secs(5)).await;
    let _ = limiter.check("ann").await.expect("a decision");
    let found = of(&limiter);
    assert!(found.is_up);
    assert_eq!(found.failures, expected, "none since then");
}

#[tokio::test(start_paused = true)]
async fn limiters_on_one_store_share_its_numbers_and_export_them_once() {
    let redis = SimulatedRedis::new();
    let shared = store(&redis);
    let limiter = |name, store: RedisStore| {
        let builder = Limiter::builder().name(name).store(store);
        builder
            .policy(TokenBucket::per_day(9))
            .build()
            .expect("a limiter")
    };
    let (one, other) = (limiter("one", shared.clone()), limiter("other", shared));
    for limiter in [&one, &other, &other] {
        let _ = limiter.check("ann").await.expect("a decision");
    }
    assert_eq!(of(&one), of(&other));
    let calls = |text: String| {
        let lines = text.lines().map(str::to_owned);
        let counts =
            lines.filter(|line| line.starts_with("tower_throttle_store_call_seconds_count"));
        counts.collect::<Vec<_>>()
    };
    let text = metrics::to_prometheus([&one.metrics(), &other.metrics()]);
    let twice = [&one.metrics(), &other.metrics(), &one.clone().metrics()];
    assert_eq!(metrics::to_prometheus(twice), text, "a clone is the same");
    let line =
        |calls| format!("tower_throttle_store_call_seconds_count{{store=\"redis\"}} {calls}");
    assert_eq!(calls(text), [line(3)]);

    // Another store of the same name is added; a name of its own sets it apart.
    let third = limiter("third", store(&redis));
    let _ = third.check("ann").await.expect("a decision");
    let snapshots = [one.metrics(), other.metrics(), third.metrics()];
    assert_eq!(calls(metrics::to_prometheus(&snapshots)), [line(4)]);
    let named = RedisStore::builder().name("sessions").simulated(&redis);
    let named = limiter("named", named.expect("a store"));
    let text = metrics::to_prometheus([&one.metrics(), &named.metrics()]);
    let sessions = line(0).replace("redis", "sessions");
    assert_eq!(calls(text), [line(3), sessions]);
}

#[tokio::test(start_paused = true)]
async fn a_histogram_counts_up_to_each_bound_in_the_text() {
    let redis = SimulatedRedis::new();
    let limiter = denying(store(&redis));
    for delay_ms in [0, 1, 1, 20] {
        redis.set_delay(ms(delay_ms));
        let _ = limiter.check("ann").await.expect("a decision");
    }
    let text = limiter.metrics().to_prometheus();
    let start = "tower_throttle_store_call_seconds_bucket{store=\"redis\",le=\"";
    let buckets = text.lines().filter_map(|line| line.strip_prefix(start));
    let buckets: Vec<_> = buckets.collect();
    let expected = [
        ["0.0001", "0.00025", "0.0005", "0.001"].map(|bound| (bound, 1)),
        ["0.0025", "0.005", "0.01", "0.025"].map(|bound| (bound, 3)),
        ["0.05", "0.1", "0.25", "0.5"].map(|bound| (bound, 4)),
    ];
    let expected = expected
        .concat()
        .into_iter()
        .chain([("1.0", 4), ("+Inf", 4)]);
    let expected: Vec<_> = expected
        .map(|(bound, count)| format!("{bound}\"}} {count}"))
        .collect();
    assert_eq!(buckets, expected);
    let sum = "tower_throttle_store_call_seconds_sum{store=\"redis\"} 0.044";
    assert!(text.lines().any(|line| line == sum), "{text}");
}

/// Wraps a store of which it passes on all but the numbers.
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

/// Both share what was logged, so they are exported as one store.
#[tokio::test(start_paused = true)]
async fn a_wrapper_does_not_hide_the_numbers_of_its_store() {
    let redis = SimulatedRedis::new();
    let shared = store(&redis);
    let (wrapped, bare) = (denying(Wrapper(shared.clone())), denying(shared));
    for limiter in [&wrapped, &bare] {
        let _ = limiter.check("ann").await.expect("a decision");
    }
    assert_eq!(of(&wrapped).name, "custom");
    let found = |snapshots| {
        let text = metrics::to_prometheus(snapshots);
        let of_stores =
            |line: &&str| line.starts_with("tower_throttle_") && line.contains("store=");
        let lines: Vec<_> = text.lines().filter(of_stores).map(str::to_owned).collect();
        lines
    };
    let (wrapped, bare) = (wrapped.metrics(), bare.metrics());
    let expected = found([&bare, &bare]);
    let calls = "tower_throttle_store_call_seconds_count{store=\"redis\"} 2";
    assert!(expected.iter().any(|line| line == calls), "{expected:?}");
    assert_eq!(found([&wrapped, &bare]), expected);
    assert_eq!(found([&bare, &wrapped]), expected);
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
    let buggy = Buggy {
        store: store(&redis),
        panics: Arc::default(),
    };
    // Both layers have the same store.
    let limiters = [denying(buggy.clone()), denying(buggy.clone())];
    let ask = async |times| {
        for _ in 0..times {
            let _ = limiters[0].check("ann").await.expect("a decision");
        }
    };
    let calls = |limiter| filled(of(limiter).call_seconds.as_ref())[0].1;
    let panics = |panics| buggy.panics.store(panics, Ordering::Relaxed);

    ask(3).await;
    assert_eq!(calls(&limiters[0]), 3);
    panics(true);
    ask(2).await;
    redis.set_connected(false);
    limiters[0].check("ann").await.expect_err("no connection");
    for limiter in &limiters {
        let found = of(limiter);
        assert_eq!(found.name, "mine");
        assert_eq!((found.call_seconds, found.in_flight), (None, None));
        assert_eq!((found.failures.total(), found.is_up), (1, false));
    }
    panics(false);
    // The call without a reply is counted, too.
    assert_eq!(calls(&limiters[1]), 6);
    assert_eq!(of(&limiters[1]).in_flight, Some(0));
}

/// A store that always fails at once.
#[derive(Debug)]
struct Down;

impl Store for Down {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Err(StoreError::unavailable("switched off")))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("switched off")))
    }
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
}

/// An operation that no store supports is a mistake of the caller.
#[tokio::test]
async fn a_mistake_of_the_caller_is_no_failure() {
    let limiter = Limiter::new(Down, Concurrency::new(1));
    let error = limiter.check("ann").await.expect_err("it needs `acquire`");
    assert!(error.is_unsupported());
    assert_eq!(
        (of(&limiter).failures.total(), of(&limiter).is_up),
        (0, true)
    );
}

#[tokio::test(start_paused = true)]
async fn gauges_follow_what_is_kept_and_held() {
    let memory = Limiter::new(MemoryStore::new(), Concurrency::new(5));
    let permits = [
        memory
            .acquire("ann", Duration::ZERO)
            .await
            .expect("a permit"),
        memory
            .acquire_n("bob", 3, Duration::ZERO)
            .await
            .expect("a permit"),
    ];
    let found = of(&memory);
    assert_eq!((&*found.name, found.held_units), ("memory", 4));
    assert_eq!((found.memory_buckets, found.call_seconds), (Some(2), None));
    drop(permits);
    assert_eq!(of(&memory).held_units, 0);

    // Permits and buckets of this process, while the store fails.
    let redis = SimulatedRedis::new();
    redis.set_connected(false);
    let builder = Limiter::builder().store(store(&redis));
    let local = builder
        .policy(Policy::new("running", Concurrency::new(5)))
        .policy(Policy::new("rate", TokenBucket::per_day(5)))
        .build()
        .expect("a limiter");
    assert_eq!(of(&local).local_buckets, 0);
    let permit = local
        .acquire("ann", Duration::ZERO)
        .await
        .expect("a permit");
    assert!(permit.is_allowed());
    assert_eq!((of(&local).held_units, of(&local).local_buckets), (1, 2));
    drop(permit);
    assert_eq!(of(&local).held_units, 0);
}

#[tokio::test(start_paused = true)]
async fn cached_denials_count_until_they_end() {
    let redis = SimulatedRedis::new();
    let cached = RedisStore::builder().denial_cache_ttl(ms(400));
    let limiter = Limiter::new(
        cached.simulated(&redis).expect("a store"),
        FixedWindow::per_day(1),
    );
    for caller in ["ann", "bob", "ann", "bob", "ann"] {
        let _ = limiter.check(caller).await.expect("a decision");
    }
    assert_eq!(redis.served().checks, 4, "one denial was repeated");
    assert_eq!(of(&limiter).cached_denials, Some(2));
    sleep(ms(500)).await;
    assert_eq!(of(&limiter).cached_denials, Some(0));
}

#[tokio::test(start_paused = true)]
async fn leased_units_count_until_they_are_back() {
    let redis = SimulatedRedis::new();
    let quota = TokenBucket::per_second(100_000).burst(100_000);
    let limiter = Limiter::new(store(&redis), Policy::new("hot", quota).lease());
    let mut most = 0;
    for _ in 0..2_000 {
        let _ = limiter.check("ann").await.expect("a decision");
        yield_now().await;
        most = most.max(of(&limiter).leased_units.expect("a store that leases"));
    }
    assert!(most > 0, "{:?}", redis.served());
    assert!(
        redis.served().checks < 2_000,
        "some were decided from a lease"
    );
    sleep(Duration::from_secs(2)).await;
    assert_eq!(of(&limiter).leased_units, Some(0));
}

#[tokio::test(start_paused = true)]
async fn waits_are_counted_however_they_end() {
    let second = Duration::from_secs(1);
    let memory = MemoryStore::builder().clock(Arc::new(ManualClock::new()));
    let limiter = Limiter::new(memory.build(), TokenBucket::per_second(1).burst(1));
    let acquire = |wait| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("ann", wait).await.expect("an answer") })
    };
    assert!(acquire(second).await.expect("no panic").is_allowed());
    assert_eq!(limiter.metrics().wait_seconds.count(), 0, "it did not wait");

    let waits = acquire(10 * second);
    let leaves = acquire(10 * second);
    while limiter.metrics().waiting < 2 {
        yield_now().await;
    }
    leaves.abort();
    assert!(leaves.await.expect_err("it left").is_cancelled());
    let found = limiter.metrics();
    assert_eq!((found.waiting, found.wait_seconds.count()), (1, 1));
    assert!(waits.await.expect("no panic").is_allowed());
    let found = limiter.metrics();
    assert_eq!((found.waiting, found.wait_seconds.count()), (0, 2));
    // The one that left did so at once, and the other waited for a second. Timers tick in
    // milliseconds.
    let seconds = found.wait_seconds.sum;
    assert!((1.0..1.01).contains(&seconds), "{found:?}");
    assert_eq!(found.wait_seconds.counts.first(), Some(&1));
}
