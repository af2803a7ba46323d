//! The memory store: bounded, and it forgets drained buckets only.

use std::{collections::VecDeque, thread};

use proptest::prelude::*;

use crate::support::prelude::*;

fn store(capacity: usize) -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().capacity(capacity);
    (store.clock(clock.clone()).build(), clock)
}

fn is_admitted(limiter: &Limiter, key: u64) -> bool {
    let decision = limiter.check_now(key);
    decision.expect("memory always decides").is_allowed()
}

#[test]
fn a_capacity_of_0_means_1() {
    let admitted = |capacity| -> Vec<bool> {
        let limiter = Limiter::new(store(capacity).0, TokenBucket::per_hour(2));
        let keys = [1, 1, 1, 2, 2, 2, 3, 1];
        keys.map(|key| is_admitted(&limiter, key)).to_vec()
    };
    assert_eq!(admitted(0), admitted(1));
    assert!(admitted(0).starts_with(&[true, true, false, true]));
}

#[test]
fn callers_without_room_share_cells_by_policy() {
    let (store, _) = store(4_096);
    let one = Limiter::new(store.clone(), Policy::new("one", TokenBucket::per_hour(2)));
    let two = Limiter::new(store.clone(), Policy::new("two", TokenBucket::per_hour(2)));
    for key in 0..20_000 {
        is_admitted(&one, key);
    }
    // There is no room for a new caller, but the cells of the other policy are its own: 2,048,
    // and each unit is counted in two of them if they are equally full.
    let admitted = (0..10_000).filter(|key| is_admitted(&two, *key));
    let admitted = admitted.count();
    assert!((2_048..=4_096).contains(&admitted), "{admitted}");
    assert!(store.len() <= 4_096 + 2 * 2_048, "{}", store.len());
}

#[test]
fn a_refund_without_a_bucket_reaches_no_other_caller() {
    for bucket in [
        TokenBucket::per_day(2),
        TokenBucket::per_day(2).initial(1),
        TokenBucket::per_day(2).refill_at_once(),
    ] {
        let (store, _) = store(64);
        let limiter = Limiter::new(store.clone(), bucket);
        for key in 0..64 {
            assert!(is_admitted(&limiter, key));
        }
        let full = store.len();
        for key in 1_000..2_000 {
            while is_admitted(&limiter, key) {}
        }
        for key in 1_000..2_000 {
            let moved = now(limiter.credit(key, 2)).refunded();
            assert_eq!(moved, 0, "{bucket:?} {key}");
            now(limiter.reset(key));
            assert!(!is_admitted(&limiter, key), "{bucket:?} {key}");
        }
        // Only the cells are left, and no buckets of callers.
        assert!(store.len() <= full + 32, "{} > {full}", store.len());
        // A caller with a bucket gets its refund.
        assert!(now(limiter.credit(0, 2)).refunded() > 0);
    }
}

#[test]
fn checks_of_several_policies_respect_the_capacity() {
    let (store, _) = store(63);
    let window = FixedWindow::per_day(1);
    let policies = ["one", "two", "three", "four"].map(|name| Policy::new(name, window));
    let limiter = limiter_of(store.clone(), policies);
    for key in 0..200 {
        is_admitted(&limiter, key);
    }
    // For each policy there are half as many cells more, which newcomers share.
    assert!(store.len() <= 63 + 4 * 31, "{}", store.len());
    for key in 0..15 {
        assert!(!is_admitted(&limiter, key), "{key}");
    }
}

/// Runs this on eight threads at once, with the number of each.
fn on_threads<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|result| result.expect("no panic")).collect()
    })
}

#[test]
fn exactly_the_capacity_passes_of_many_racing_threads() {
    let policies = [
        Policy::new("large", TokenBucket::per_day(1_000)),
        Policy::new("small", FixedWindow::per_day(300)),
        Policy::new("everyone", FixedWindow::per_day(700)).shared(),
    ];
    let limiter = limiter_of(MemoryStore::new(), policies);
    // Half of the threads use one caller, and half another.
    let admitted = on_threads(|number| {
        let checks = (0..400).map(|_| is_admitted(&limiter, number % 2));
        checks.filter(|admitted| *admitted).count()
    });
    assert_eq!(admitted.iter().sum::<usize>(), 600);
    for key in [0_u64, 1] {
        assert_eq!(left_of(&now(limiter.peek(key))), [700, 0, 100]);
    }
}

#[test]
fn each_caller_gets_its_own_quota_while_threads_race_and_the_store_grows() {
    const CALLERS: u64 = 5_000;
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone(), TokenBucket::per_day(5));
    let admitted: Vec<Vec<u64>> = on_threads(|number| {
        // Each thread uses another order.
        let callers = (0..CALLERS).map(|n| (n * 7 + number * 600) % CALLERS);
        let admitted = callers.filter(|caller| is_admitted(&limiter, *caller));
        admitted.collect()
    });
    let mut counts = vec![0; CALLERS as usize];
    for caller in admitted.into_iter().flatten() {
        counts[caller as usize] += 1;
    }
    assert!(counts.iter().all(|count| *count == 5), "{counts:?}");
    assert_eq!(store.len() as u64, CALLERS);
}

/// Returns a list of times, one after another.
#[derive(Debug)]
struct Script(Mutex<Vec<u64>>);

impl Clock for Script {
    fn now_us(&self) -> u64 {
        let mut left = self.0.lock().expect("no panic");
        left.pop().expect("a time")
    }
}

#[test]
fn an_overtaken_check_reads_the_clock_again() {
    // The second check reads 2,000. Meanwhile another check has come at 3,000.
    let mut times = vec![1_000, 3_000, 2_000, 3_001, 3_001];
    times.reverse();
    let store = MemoryStore::builder().clock(Arc::new(Script(Mutex::new(times))));
    let limiter = Limiter::new(store.build(), TokenBucket::per_second(10));
    let times: Vec<u64> = (0..4)
        .map(|_| decided_at_us(&now(limiter.check(1))))
        .collect();
    assert_eq!(times, [1_000, 3_000, 3_001, 3_001]);
}

#[test]
fn a_clock_in_the_wrong_unit_still_limits() {
    for now_us in [0, 1, u64::MAX, 1_795_242_000_000_000_000] {
        let (store, clock) = store(1_024);
        let bucket = Policy::new("bucket", TokenBucket::per_minute(3));
        let window = Policy::new("window", FixedWindow::per_minute(3));
        let limiter = limiter_of(store, [bucket, window]);
        clock.set_us(now_us);
        let admitted = (0..10).filter(|_| is_admitted(&limiter, 1));
        assert_eq!(admitted.count(), 3, "at {now_us}");
        clock.advance(Duration::MAX);
    }
}

/// Each version reads sliding windows of the other as its own, so some units count too little for a
/// while. Aligned windows end at the ends of both.
#[test]
fn windows_of_two_lengths_admit_three_times_the_limit_at_most() {
    proptest!(|(
        limit in 1..30_u64,
        is_sliding in any::<bool>(),
        one_ms in 50..1_000_u64,
        other_ms in 50..1_000_u64,
        start_us in 0..3_000_000_u64,
        asks in proptest::collection::vec((any::<bool>(), 0..1_000_u64), 300),
    )| {
        let (store, clock) = store(1_000);
        clock.advance(Duration::from_micros(start_us));
        let [one, other] = [one_ms, other_ms].map(|window_ms| {
            let window = Duration::from_millis(window_ms);
            let policy = match is_sliding {
                true => Policy::new("api", SlidingWindow::new(limit, window)),
                false => Policy::new("api", FixedWindow::new(limit, window).aligned()),
            };
            Limiter::new(store.clone(), policy)
        });
        let shorter_us = one_ms.min(other_ms) * 1_000;
        let mut now_us = 0;
        let mut admitted = VecDeque::new();
        for (is_one, thousandth) in asks {
            if is_admitted(if is_one { &one } else { &other }, 1) {
                admitted.push_back(now_us);
            }
            admitted.retain(|at_us| now_us - at_us < shorter_us);
            prop_assert!(admitted.len() as u64 <= 3 * limit);
            // Often enough to use the whole quota.
            let step_us = shorter_us / (4 * limit) * thousandth / 500;
            now_us += step_us;
            clock.advance(Duration::from_micros(step_us));
        }
    });
}

fn now<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
    at_once(future).expect("memory always decides")
}

/// A store in which only cells of the sketch are left for new callers.
fn full_store() -> (MemoryStore, Arc<ManualClock>) {
    let (store, clock) = store(128);
    let other = FixedWindow::new(1, Duration::from_secs(100 * 86_400));
    let other = Limiter::new(store.clone(), Policy::new("other", other));
    for key in 0..1_000 {
        is_admitted(&other, key);
    }
    (store, clock)
}

fn quotas(limit: u64, window: Duration) -> Vec<Policy> {
    let bucket = TokenBucket::new(limit, window);
    vec![
        Policy::new("bucket", bucket),
        Policy::new("deep", bucket.burst(3 * limit)),
        Policy::new("initial", bucket.initial(limit / 2)),
        Policy::new("at once", bucket.refill_at_once().burst(2 * limit)),
        Policy::new("first half", bucket.refill_at_once().initial(limit / 2)),
        Policy::new("leaky", LeakyBucket::new(limit, window)),
        Policy::new("window", FixedWindow::new(limit, window)),
        Policy::new("aligned", FixedWindow::new(limit, window).aligned()),
        Policy::new("spread", FixedWindow::new(limit, window).aligned().spread()),
        Policy::new("sliding", SlidingWindow::new(limit, window)),
        Policy::new("log", SlidingLog::new(limit, window)),
    ]
}

/// What the sketch admits is also checked on exact buckets that have counted nothing else: they
/// admit it, too, and report no fewer remaining units.
#[test]
fn a_caller_without_a_bucket_is_never_admitted_beyond_its_own_limit() {
    proptest!(ProptestConfig::with_cases(64), |(
        limit in 2..20_u64,
        window_ms in 10..2_000_u64,
        callers in 1..400_u64,
        which in proptest::sample::subsequence((0..11_usize).collect::<Vec<_>>(), 1..4),
        steps in proptest::collection::vec((any::<u64>(), 0..16_u8, 0..100_u64), 600),
    )| {
        let all = quotas(limit, Duration::from_millis(window_ms));
        let (shared, clock) = full_store();
        let exact = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = |store: &MemoryStore| {
            limiter_of(store.clone(), which.iter().map(|at| all[*at].clone()))
        };
        let (shared, exact) = (limiter(&shared), limiter(&exact));
        let mut admitted = 0;
        for (caller, what, number) in steps {
            let caller = 10_000 + caller % callers;
            let units = 1 + number % 3;
            match what {
                0..=9 => {
                    let decision = now(shared.check_n(caller, units));
                    if decision.is_allowed() {
                        admitted += 1;
                        let own = now(exact.check_n(caller, units));
                        prop_assert!(own.is_allowed(), "{own:?}");
                        for (cells, own) in decision.policies().zip(own.policies()) {
                            prop_assert!(cells.remaining() <= own.remaining(), "{decision:?} {own:?}");
                        }
                    }
                }
                10 => {
                    let (cells, own) = (now(shared.peek(caller)), now(exact.peek(caller)));
                    for (cells, own) in cells.policies().zip(own.policies()) {
                        prop_assert!(cells.remaining() <= own.remaining(), "{cells:?} {own:?}");
                    }
                }
                11 => {
                    let taken = now(shared.take_up_to(caller, units)).charged();
                    if taken > 0 {
                        prop_assert!(now(exact.check_n(caller, taken)).is_allowed());
                    }
                }
                12 => {
                    prop_assert_eq!(now(shared.credit(caller, units)).refunded(), 0);
                }
                13 => now(shared.reset(caller)),
                _ => clock.advance(Duration::from_micros(window_ms * 10 * number)),
            }
        }
        prop_assert!(admitted > 0 || which.contains(&2) || which.contains(&4));
    });
}

/// Tiers of one policy have cells of their own.
#[test]
fn callers_of_two_tiers_share_no_cells() {
    let (store, _) = full_store();
    let limiter = |limit| {
        let window = FixedWindow::per_day(limit);
        Limiter::new(store.clone(), Policy::new("tier", window))
    };
    let (free, paid) = (limiter(1), limiter(1_000));
    let admitted = (0..5_000).filter(|key| is_admitted(&free, *key));
    assert!(admitted.count() >= 32);
    assert!(!is_admitted(&free, 1_000_000));
    assert!(is_admitted(&paid, 1_000_000));
}
