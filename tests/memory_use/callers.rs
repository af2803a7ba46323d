//! Floods of new callers: memory stays within what is documented, and they free no caller
//! that is denied.

use tower_throttle::RedisStore;

use crate::support::prelude::*;
use crate::{ALLOCATOR, turn};

/// Returns how many bytes more are held after this, and the highest number meanwhile.
fn bytes<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    let held = ALLOCATOR.current_usage().saturating_sub(before);
    (done, held, ALLOCATOR.peak_usage() - before)
}

/// Returns the result: the memory store answers at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

const OFFENDER: u64 = u64::MAX;

/// The offender uses up its quota, then the flood comes. Returns how many others are admitted.
fn flood(limiter: &Limiter, clock: &ManualClock, callers: u64) -> u64 {
    let is_admitted = |key: u64| now(limiter.check(key)).expect("a decision").is_allowed();
    while is_admitted(OFFENDER) {}
    let mut admitted = 0;
    for key in 0..callers {
        admitted += u64::from(is_admitted(key));
        if key % 10_000 == 0 {
            assert!(!is_admitted(OFFENDER), "freed after {key}");
            clock.advance(Duration::from_millis(1));
        }
    }
    assert!(!is_admitted(OFFENDER));
    admitted
}

/// At each number of callers from 50,000 on, while the tables double twice.
#[test]
fn a_caller_takes_28_to_57_bytes() {
    let _turn = turn();
    const LEAST: u64 = 50_000;
    const MOST: u64 = 4 * LEAST;
    let clock = Arc::new(ManualClock::new());
    let policies = [
        Policy::new("bucket", TokenBucket::per_day(5)),
        Policy::new("window", FixedWindow::per_day(5)),
    ];
    for policy in policies {
        let before = ALLOCATOR.current_usage();
        // Each part has room for somewhat more than its share.
        let store = MemoryStore::builder().capacity(MOST as usize * 6 / 5);
        let store = store.clock(clock.clone()).build();
        let limiter = Limiter::new(store.clone(), policy);
        let (mut worst, mut sum, mut seen) = (0.0_f64, 0.0, 0.0);
        for key in 0..MOST {
            assert!(now(limiter.check(key)).expect("a decision").is_allowed());
            let callers = key + 1;
            if callers >= LEAST && callers % 500 == 0 {
                assert_eq!(store.len() as u64, callers);
                let held = ALLOCATOR.current_usage() - before;
                let each = held as f64 / callers as f64;
                assert!(
                    (28.0..=57.0).contains(&each),
                    "{each} bytes for each of {callers}"
                );
                (worst, sum, seen) = (each.max(worst), sum + each, seen + 1.0);
            }
            if [LEAST, MOST].contains(&callers) {
                let held = ALLOCATOR.current_usage() - before;
                println!(
                    "{:.1} bytes for each of {callers}",
                    held as f64 / callers as f64
                );
            }
        }
        println!(
            "{worst:.1} bytes for each at most, {:.1} usually",
            sum / seen
        );
    }
}

/// Three for each bucket. The tables of the parts double at powers of two, so an eighth of the
/// default capacity takes an eighth of its memory.
#[test]
fn a_flood_of_callers_in_memory() {
    const CAPACITY: usize = 1_000_000 / 8;
    let _turn = turn();
    let clock = Arc::new(ManualClock::new());
    let (store, held, most) = bytes(|| {
        let store = MemoryStore::builder().capacity(CAPACITY);
        let store = store.clock(clock.clone()).build();
        let policy = Policy::new("api", TokenBucket::per_day(5));
        let callers = 3 * CAPACITY as u64;
        flood(&Limiter::new(store.clone(), policy), &clock, callers);
        store
    });
    println!(
        "memory: {} buckets, {held} bytes, {most} at most",
        store.len()
    );
    assert!(store.len() <= CAPACITY * 3 / 2 + 64, "{}", store.len());
    assert!(store.len() >= CAPACITY / 100 * 99, "{}", store.len());
    // The parts themselves are as many as for a larger capacity.
    assert!(most <= MEMORY / 8 + 100_000, "{most}");

    // Drained buckets are forgotten, and their memory is freed.
    clock.advance(Duration::from_secs(86_400));
    let limiter = Limiter::new(store.clone(), Policy::new("api", TokenBucket::per_day(5)));
    let before = ALLOCATOR.current_usage();
    for key in 0..2_500 {
        assert!(now(limiter.check(key)).expect("a decision").is_allowed());
    }
    assert!(store.len() <= 2_500, "{}", store.len());
    assert!(before - ALLOCATOR.current_usage() > held / 10 * 8);
}

/// The documented maximum for a million buckets and the cells of one policy.
const MEMORY: usize = 53_000_000;
/// The documented maximum of the fallback.
const FALLBACK: usize = 7_000_000;
/// The same for buckets of more than two words.
const FALLBACK_WORDS: usize = 13_000_000;

/// A store that is down, and its fallback.
#[derive(Debug)]
struct Down(Fallback);

impl Store for Down {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Err(StoreError::unavailable("it is down")))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("it is down")))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.clone())
    }
}

/// Returns how many of 10,000 honest callers with one request each are admitted.
fn admitted_newcomers(limiter: &Limiter) -> usize {
    let honest = (1 << 40..).take(10_000);
    let is_admitted = |key: &u64| now(limiter.check(*key)).expect("a decision").is_allowed();
    honest.filter(is_admitted).count()
}

/// The outage of a store keeps 100,000 buckets.
#[test]
fn newcomers_are_admitted_after_140_000_junk_callers_of_an_outage() {
    let _turn = turn();
    let clock = Arc::new(ManualClock::new());
    let down = Down(Fallback::with_clock(clock));
    let limiter = Limiter::new(down, Policy::new("day", FixedWindow::per_day(50)));
    for key in 0..140_000_u64 {
        let _ = now(limiter.check(key));
    }
    let admitted = admitted_newcomers(&limiter);
    println!("{admitted} of 10,000 are admitted");
    assert!(admitted >= 9_900, "{admitted}");
}

/// In each algorithm: 14 junk callers for each bucket of the store.
#[test]
fn newcomers_are_admitted_by_a_full_store() {
    let _turn = turn();
    for policy in [
        Policy::new("day", FixedWindow::per_day(50)),
        Policy::new("calendar", FixedWindow::per_calendar_day(50).spread()),
        Policy::new("bucket", TokenBucket::per_day(50)),
        Policy::new("sliding", SlidingWindow::per_day(50)),
        Policy::new("log", SlidingLog::per_day(50)),
    ] {
        let store = MemoryStore::builder().capacity(10_000);
        let store = store.clock(Arc::new(ManualClock::new())).build();
        let limiter = Limiter::new(store, policy.clone());
        for key in 0..140_000_u64 {
            let _ = now(limiter.check(key));
        }
        let honest = (1 << 40..).take(1_000);
        let is_admitted = |key: &u64| now(limiter.check(*key)).expect("a decision").is_allowed();
        let admitted = honest.filter(is_admitted).count();
        println!("{admitted} of 1,000 are admitted: {policy:?}");
        assert!(admitted >= 990, "{admitted}: {policy:?}");
    }
}

/// The documented amount of junk leaves 99 of 100 newcomers a cell with room: callers that use
/// up their limits fill whole cells.
#[test]
fn newcomers_are_admitted_where_junk_callers_use_up_their_limits() {
    let _turn = turn();
    const CAPACITY: u64 = 100_000;
    for (limit, junk, each) in [
        (5, CAPACITY / 50, 5),
        (50, CAPACITY / 50, 50),
        (10, 10 * CAPACITY / 4, 1),
    ] {
        let store = MemoryStore::builder().capacity(CAPACITY as usize);
        let store = store.clock(Arc::new(ManualClock::new())).build();
        let full = Limiter::new(store.clone(), Policy::new("full", FixedWindow::per_day(1)));
        for key in 0..CAPACITY * 11 / 10 {
            let _ = now(full.check(key));
        }
        let limiter = Limiter::new(store, FixedWindow::per_day(limit));
        for key in 0..junk {
            for _ in 0..each {
                let _ = now(limiter.check(key));
            }
        }
        let admitted = admitted_newcomers(&limiter);
        println!("limit {limit}: {admitted} of 10,000 are admitted");
        assert!(admitted >= 9_900, "limit {limit}: {admitted}");
    }
}

#[test]
fn a_flood_of_callers_takes_100_000_buckets_and_frees_no_denied_caller() {
    let _turn = turn();
    let clock = Arc::new(ManualClock::new());
    let policies = [
        (FALLBACK, Policy::new("api", TokenBucket::per_day(5))),
        (FALLBACK, Policy::new("day", FixedWindow::per_day(50))),
        (
            FALLBACK_WORDS,
            Policy::new("sliding", SlidingWindow::per_day(50)),
        ),
    ];
    for (documented, policy) in policies {
        let (limiter, held, most) = bytes(|| {
            let limiter = Limiter::new(Down(Fallback::with_clock(clock.clone())), policy);
            // Twice as many as buckets: the cells are in use, too. 100,000 callers have a bucket
            // each, and the others share 50,000 cells.
            let admitted = flood(&limiter, &clock, 200_000);
            assert!(admitted >= 90_000, "{admitted}");
            limiter
        });
        println!("fallback: {held} bytes more, {most} at most");
        assert!(most <= documented, "{most}");
        // When the windows have ended, all callers have buckets of their own again.
        clock.advance(Duration::from_secs(2 * 86_400));
        let again = now(limiter.check(OFFENDER)).expect("a decision");
        assert!(again.is_allowed());
    }
}

#[tokio::test]
#[allow(clippy::await_holding_lock)]
async fn ten_thousand_callers_in_redis() {
    let _turn = turn();
    const KEYS: u64 = 10_000;
    for policy in [
        Policy::new("api", TokenBucket::per_minute(1)),
        Policy::new("window", FixedWindow::per_minute(1)),
        Policy::new("sliding", SlidingWindow::per_minute(1)),
    ] {
        // A server of its own, because flushed memory may be freed later.
        let server = RedisServer::start();
        let used = || -> u64 {
            let memory = server.command(&["INFO", "memory"]);
            let used = memory
                .lines()
                .find_map(|line| line.strip_prefix("used_memory:"));
            used.and_then(|bytes| bytes.trim().parse().ok())
                .expect("a number")
        };
        let store = RedisStore::builder()
            .timeout(DEADLINE)
            .connect(&server.url());
        let limiter = Limiter::new(store.expect("a store"), policy);
        let _ = limiter.check("first").await.expect("a decision");
        let before = used();
        let tasks: Vec<_> = (0..50)
            .map(|part| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    for key in (0..KEYS).filter(|key| key % 50 == part) {
                        let key = format!("{key}-{}", "long".repeat(50));
                        let decision = limiter.check(key).await.expect("a decision");
                        assert!(decision.is_allowed());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let each = used().saturating_sub(before) / KEYS;
        println!("Redis: {each} bytes for each caller");
        assert!((50..=250).contains(&each), "{each}");
        // All keys expire, within the time in which they have an effect.
        let script = "local most = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                      local left = redis.call('PTTL', key) if left < 0 then return -1 end \
                      most = math.max(most, left) end return most";
        let most: i64 = server
            .command(&["EVAL", script, "0"])
            .parse()
            .expect("a number");
        assert!((1..=121_000).contains(&most), "{most}");
    }
}

/// Denied new callers, more than the cache holds.
#[test]
fn forty_thousand_callers_denied_by_redis() {
    let _turn = turn();
    const AT_ONCE: u64 = 200;
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    // The bucket has no token for any caller.
    let empty = TokenBucket::per_day(1).initial(0);
    for (policies, documented) in [(2, 3_000_000), (4, 7_000_000)] {
        let store = RedisStore::builder()
            .timeout(DEADLINE)
            .denial_cache_ttl(Duration::from_secs(60));
        let store = runtime.block_on(async { store.connect(&server.url()) });
        let builder = Limiter::builder()
            .store(store.expect("a store"))
            .on_store_failure(OnStoreFailure::Deny);
        let builder = (0..policies).fold(builder, |builder, number| {
            builder.policy(Policy::new(format!("{policies}-{number}"), empty))
        });
        let limiter = builder.build().expect("a limiter");
        let ask = async |first: u64| {
            let mut checks = JoinSet::new();
            for key in first..first + AT_ONCE {
                let limiter = limiter.clone();
                checks.spawn(async move { limiter.check(key).await });
            }
            while let Some(decision) = checks.join_next().await {
                let decision = decision.expect("no panic").expect("a decision");
                assert!(!decision.is_allowed());
            }
        };
        runtime.block_on(ask(u64::MAX - AT_ONCE));
        let ((), held, _) = bytes(|| {
            for turn in 0..40_000 / AT_ONCE {
                runtime.block_on(ask(turn * AT_ONCE));
            }
        });
        println!("{policies} policies: {held} bytes more");
        assert!((2_000_000..=documented).contains(&held), "{held}");
    }
}
