//! Floods of new callers: memory stays within what is documented, and they free no caller
//! that is denied.

use crate::support::prelude::*;
use crate::{ALLOCATOR, runtime, turn};

/// Returns how many bytes more are held after this, and the highest number meanwhile.
fn bytes<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    let held = ALLOCATOR.current_usage().saturating_sub(before);
    (done, held, ALLOCATOR.peak_usage() - before)
}

fn is_admitted(limiter: &Limiter, key: u64) -> bool {
    at_once(check(limiter, key)).is_allowed()
}

/// Returns a store in memory at a clock that stands, and the clock.
fn store(capacity: usize) -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().capacity(capacity);
    (store.clock(clock.clone()).build(), clock)
}

const OFFENDER: u64 = u64::MAX;

/// The offender uses up its quota, then the flood comes. Returns how many others are admitted.
fn flood(limiter: &Limiter, clock: &ManualClock, callers: u64) -> u64 {
    let is_admitted = |key| is_admitted(limiter, key);
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
    for policy in [
        Policy::new("bucket", TokenBucket::per_day(5)),
        Policy::new("window", FixedWindow::per_day(5)),
    ] {
        let before = ALLOCATOR.current_usage();
        // Each part has room for somewhat more than its share.
        let (store, _) = store(MOST as usize * 6 / 5);
        let limiter = Limiter::new(store.clone(), policy);
        let mut worst = 0.0_f64;
        for key in 0..MOST {
            assert!(is_admitted(&limiter, key));
            let callers = key + 1;
            if callers >= LEAST && callers % 500 == 0 {
                assert_eq!(store.len() as u64, callers);
                let held = ALLOCATOR.current_usage() - before;
                let each = held as f64 / callers as f64;
                assert!((28.0..=57.0).contains(&each), "{each} of {callers}");
                worst = worst.max(each);
            }
        }
        println!("{worst:.1} bytes for each at most");
    }
}

/// Three for each bucket. The tables of the parts double at powers of two, so an eighth of the
/// default capacity takes an eighth of its memory.
#[test]
fn a_flood_of_callers_in_memory() {
    const CAPACITY: usize = 1_000_000 / 8;
    let _turn = turn();
    let ((store, clock), held, most) = bytes(|| {
        let (store, clock) = store(CAPACITY);
        let policy = Policy::new("api", TokenBucket::per_day(5));
        let callers = 3 * CAPACITY as u64;
        flood(&Limiter::new(store.clone(), policy), &clock, callers);
        (store, clock)
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
        assert!(is_admitted(&limiter, key));
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

/// Asserts that 99 of 100 honest callers with one request each are admitted.
#[track_caller]
fn assert_admits_newcomers(limiter: &Limiter, newcomers: usize, what: &str) {
    let honest = (1 << 40..).take(newcomers);
    let admitted = honest.filter(|key| is_admitted(limiter, *key)).count();
    println!("{admitted} of {newcomers} are admitted: {what}");
    assert!(admitted >= newcomers / 100 * 99, "{admitted}: {what}");
}

/// In each algorithm: 14 junk callers for each bucket of the store. The outage of a store keeps
/// 100,000 buckets.
#[test]
fn newcomers_are_admitted_by_a_full_store_and_in_an_outage() {
    let _turn = turn();
    let down = DownWith(Fallback::with_clock(Arc::new(ManualClock::new())));
    let day = Policy::new("day", FixedWindow::per_day(50));
    let in_outage = Limiter::new(down, day.clone());
    let full = [
        day,
        Policy::new("calendar", FixedWindow::per_calendar_day(50).spread()),
        Policy::new("bucket", TokenBucket::per_day(50)),
        Policy::new("sliding", SlidingWindow::per_day(50)),
        Policy::new("log", SlidingLog::per_day(50)),
    ];
    let full = full.map(|policy| (Limiter::new(store(10_000).0, policy), 1_000));
    for (limiter, newcomers) in full.into_iter().chain([(in_outage, 10_000)]) {
        for key in 0..140_000 {
            is_admitted(&limiter, key);
        }
        assert_admits_newcomers(&limiter, newcomers, &format!("{limiter:?}"));
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
        let (store, _) = store(CAPACITY as usize);
        let full = Limiter::new(store.clone(), Policy::new("full", FixedWindow::per_day(1)));
        for key in 0..CAPACITY * 11 / 10 {
            is_admitted(&full, key);
        }
        let limiter = Limiter::new(store, FixedWindow::per_day(limit));
        for key in 0..junk {
            for _ in 0..each {
                is_admitted(&limiter, key);
            }
        }
        assert_admits_newcomers(&limiter, 10_000, &format!("limit {limit}"));
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
            let limiter = Limiter::new(DownWith(Fallback::with_clock(clock.clone())), policy);
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
        assert!(is_admitted(&limiter, OFFENDER));
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
        let used = || server.info("used_memory");
        let limiter = Limiter::new(store_at(&server.url()), policy);
        let _ = limiter.check("first").await.expect("a decision");
        let before = used();
        let tasks = (0..50).map(|part| {
            let limiter = limiter.clone();
            async move {
                for key in (0..KEYS).filter(|key| key % 50 == part) {
                    let key = format!("{key}-{}", "long".repeat(50));
                    assert!(check(&limiter, key).await.is_allowed());
                }
            }
        });
        JoinSet::from_iter(tasks).join_all().await;
        let each = used().saturating_sub(before) / KEYS;
        println!("Redis: {each} bytes for each caller");
        assert!((50..=250).contains(&each), "{each}");
        // All keys expire, within the time in which they have an effect.
        let script = "local most = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                      local left = redis.call('PTTL', key) if left < 0 then return -1 end \
                      most = math.max(most, left) end return most";
        let most = server.command(&["EVAL", script, "0"]);
        let most: i64 = most.parse().expect("a number");
        assert!((1..=121_000).contains(&most), "{most}");
    }
}

/// Denied new callers, more than the cache holds.
#[test]
fn forty_thousand_callers_denied_by_redis() {
    let _turn = turn();
    const AT_ONCE: u64 = 200;
    let server = RedisServer::start();
    let runtime = runtime();
    // The bucket has no token for any caller.
    let empty = TokenBucket::per_day(1).initial(0);
    for (policies, documented) in [(2, 3_000_000), (4, 7_000_000)] {
        let store = patient().denial_cache_ttl(Duration::from_secs(60));
        let store = runtime.block_on(async { store.connect(&server.url()) });
        let all = (0..policies).map(|number| {
            let policy = Policy::new(format!("{policies}-{number}"), empty);
            policy.on_store_failure(OnStoreFailure::Deny)
        });
        let limiter = limiter_of(store.expect("a store"), all);
        let ask = async |first: u64| {
            let checks = (first..first + AT_ONCE).map(|key| {
                let limiter = limiter.clone();
                async move { check(&limiter, key).await }
            });
            for decision in JoinSet::from_iter(checks).join_all().await {
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
