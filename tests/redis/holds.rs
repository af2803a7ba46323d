//! Units that are held in Redis until they are settled.

use tokio::sync::Barrier;

use crate::prelude::*;

const LIFETIME: Duration = Duration::from_secs(60);

fn limiter(store: &RedisStore, quota: Quota) -> Limiter {
    denying(
        store.clone(),
        Policy::new("login", quota).hold_for(LIFETIME),
    )
}

fn hour(units: u64) -> Quota {
    FixedWindow::per_hour(units).try_into().expect("a quota")
}

async fn remaining(limiter: &Limiter) -> u64 {
    left(limiter, "ann").await
}

/// A wrong password is charged, and no number of guesses at once exceeds the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_wrong_guesses_at_once_ten_pass() {
    let server = RedisServer::start();
    for quota in [
        hour(10),
        TokenBucket::per_hour(10).try_into().expect("a quota"),
        SlidingLog::per_hour(10).try_into().expect("a quota"),
    ] {
        server.command(&["FLUSHALL"]);
        // Two stores share nothing, as two processes do.
        let limiters = [(); 2].map(|()| limiter(&store_at(&server.url()), quota));
        let together = Arc::new(Barrier::new(100));
        let mut guesses = JoinSet::new();
        for number in 0..100 {
            let (limiter, together) = (limiters[number % 2].clone(), Arc::clone(&together));
            guesses.spawn(async move {
                together.wait().await;
                let reserved = limiter.reserve("ann", 1).await.expect("a decision");
                let is_allowed = reserved.is_allowed();
                let settled = reserved.settle(u64::from(is_allowed)).await;
                settled.expect("a settlement");
                usize::from(is_allowed)
            });
        }
        let passed: usize = guesses.join_all().await.iter().sum();
        assert_eq!(passed, 10, "{quota:?}");
        for limiter in &limiters {
            assert_eq!(remaining(limiter).await, 0, "{quota:?}");
            let denied = limiter.reserve("ann", 1).await.expect("a decision");
            assert!(!denied.is_allowed(), "{quota:?}");
        }
    }
}

#[tokio::test]
async fn what_a_dropped_hold_charges_arrives_before_a_shutdown_ends() {
    let server = RedisServer::start();
    let other = limiter(&store_at(&server.url()), hour(100));
    for round in 1..=5 {
        let store = store_at(&server.url());
        let limiter = limiter(&store, hour(100));
        for _ in 0..20 {
            let reserved = limiter.reserve("ann", 1).await.expect("a decision");
            assert!(reserved.is_allowed());
        }
        store.shutdown().await;
        let seen = limiter.metrics().store.settlements;
        assert_eq!((seen.charged, seen.lost), (20, 0), "round {round}");
        assert_eq!(remaining(&other).await, 100 - 20 * round, "round {round}");
        // That of the hold expires.
        eventually("one key", || server.command(&["DBSIZE"]) == "1");
    }
}

/// Settlements are sent although no more checks may be in flight.
#[tokio::test]
async fn settlements_pass_in_a_flood() {
    let server = RedisServer::start();
    let builder = patient().max_in_flight(1);
    let store = builder.connect(&server.url()).expect("a store");
    let limiter = limiter(&store, hour(1_000));
    let mut held = Vec::new();
    for _ in 0..500 {
        held.push(limiter.reserve("ann", 1).await.expect("a decision"));
    }
    let released = held.into_iter().map(|reserved| reserved.settle(0));
    let released = JoinSet::from_iter(released).join_all().await;
    assert!(released.iter().all(Result::is_ok));
    assert_eq!(remaining(&limiter).await, 1_000);
}

/// Returns how often each of these commands ran since the last call.
fn commands(server: &RedisServer) -> Vec<(String, u64)> {
    let stats = server.command(&["INFO", "commandstats"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    let lines = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        let calls = calls.parse().expect("a number");
        // Before Redis 7, subcommands are not counted by themselves.
        let others = ["info", "config", "config|resetstat", "command"];
        let is_ours = !others.contains(&name);
        is_ours.then(|| (name.to_owned(), calls))
    });
    let mut commands: Vec<_> = lines.collect();
    commands.sort();
    commands
}

/// To hold and to settle are two calls, of which each reads and writes one key.
#[tokio::test]
async fn what_is_held_costs_no_more_commands_than_what_is_charged() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let plain = denying(store.clone(), Policy::new("plain", hour(1_000)));
    let holding = limiter(&store, hour(1_000));
    for limiter in [&plain, &holding] {
        assert!(limiter.check("bob").await.expect("a decision").is_allowed());
    }
    let one_call = ["evalsha", "get", "psetex", "time"].map(|name| (name.to_owned(), 1));
    commands(&server);
    assert!(plain.check("ann").await.expect("a decision").is_allowed());
    assert_eq!(commands(&server), one_call);
    let reserved = holding.reserve("ann", 1).await.expect("a decision");
    assert_eq!(commands(&server), one_call);
    reserved.settle(1).await.expect("a settlement");
    assert_eq!(commands(&server), one_call);
}

#[tokio::test]
async fn policies_of_several_slots_hold_and_are_settled() {
    let cluster = RedisCluster::start(3, 0);
    let store = store_at(&cluster.url());
    let own = Policy::new("own", hour(100)).hold_for(LIFETIME);
    let shared = Policy::new("shared", hour(50)).hold_for(LIFETIME).shared();
    let limiter = denying_limiter(store, [own, shared]);
    let left = async || left_of(&peek(&limiter, "ann").await);
    let reserved = limiter.reserve("ann", 40).await.expect("a decision");
    assert_eq!(left().await, [60, 10]);
    // What the first slot holds is released, as the second has no room.
    let denied = limiter.reserve("ann", 20).await.expect("a decision");
    assert!(!denied.is_allowed());
    assert_eq!(left().await, [60, 10]);
    reserved.settle(5).await.expect("a settlement");
    assert_eq!(left().await, [95, 45]);
}

/// Returns a store with a clock of its own, and the clock.
fn store_with_clock(url: &str) -> (RedisStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let builder = patient().clock(clock.clone());
    let builder = builder.denial_cache_ttl(Duration::ZERO);
    (builder.connect(url).expect("a store"), clock)
}

/// What is held, as it stands behind the state of a bucket: when the younger generation started and
/// until when the value counts, for both generations a mark and the units, and no extension.
const PACK: &str = "return redis.call('SET', KEYS[1], ARGV[1] .. struct.pack('<I6I6I7I7I7I7I6', \
     ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], 0) .. ARGV[8])";

fn set_held(server: &RedisServer, key: &str, words: &str, numbers: [u64; 6], end: &str) {
    let numbers = numbers.map(|number| number.to_string());
    let [start, ends, young, younger, old, elder] = numbers.each_ref().map(String::as_str);
    let values = [words, start, ends, young, younger, old, elder, end];
    server.command(&[&["EVAL", PACK, "1", key][..], &values].concat());
}

#[tokio::test]
async fn what_is_held_from_the_far_future_lapses() {
    let server = RedisServer::start();
    let (store, clock) = store_with_clock(&server.url());
    let limiter = limiter(&store, hour(3));
    let key = limiter.storage_keys("ann").remove(0);
    for units in [
        [3, 0],
        [9_007_199_254_740_991, 0],
        [3, 9_007_199_254_740_000],
    ] {
        let future_ms = 9_999_999_999_999;
        let [younger, elder] = units;
        let numbers = [future_ms, future_ms, 7, younger, 8, elder];
        set_held(&server, &key, "", numbers, "h");
        let denied = limiter.check("ann").await.expect("a decision");
        assert!(!denied.is_allowed(), "{units:?}");
        clock.advance(3 * LIFETIME);
        let denied = limiter.check("ann").await.expect("a decision");
        assert!(!denied.is_allowed(), "it is charged: {units:?}");
        clock.advance(Duration::from_secs(3_600));
        let allowed = limiter.check("ann").await.expect("a decision");
        assert!(allowed.is_allowed(), "{units:?}");
        limiter.reset("ann").await.expect("forgotten");
    }
}

/// Bytes that resemble what is held make no script fail, and lock nobody else out.
#[tokio::test]
async fn crafted_bytes_behind_a_bucket_affect_that_caller_only() {
    let server = RedisServer::start();
    let (store, clock) = store_with_clock(&server.url());
    let quotas = "3 per minute | 3 without refill | 3 per minute, refill at once | \
        fixed window of 3 per hour | sliding window of 3 per minute | sliding log of 3 per minute";
    let mut random = Random::new();
    for quota in quotas.split(" | ") {
        let quota: Quota = quota.parse().expect("a quota");
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&store, quota);
        let key = limiter.storage_keys("ann").remove(0);
        let (mut corrupt, mut taken) = (0, 0);
        for _ in 0..100 {
            let now_ms = clock.now_us() / 1_000;
            let behind_ms = [now_ms, now_ms - 60_000, now_ms - 130_000];
            let starts = [&behind_ms[..], &[0, now_ms + 500_000, 1 << 47]].concat();
            let units = [0, 1, 3, 1_000_000, 1 << 53, (1 << 56) - 1];
            let [start, ends] = [(); 2].map(|()| random.one_of(&starts));
            let [young, younger, old, elder] = [(); 4].map(|()| random.one_of(&units));
            let numbers = [start, ends, young, younger, old, elder];
            let words = random.one_of(&["", "", "1", "17672256000000000000", "x", "Lxxxxx"]);
            let end = random.one_of(&["h", "h", "h", "x", "hh", ""]);
            set_held(&server, &key, words, numbers, end);
            let text = format!("{words:?} {numbers:?} {end:?}");
            if random.below(2) == 0 {
                clock.advance(Duration::from_secs(random.below(200)));
            }
            let reserved = limiter.reserve("ann", 1).await;
            for answer in [
                match reserved {
                    Ok(reserved) => reserved.settle(2).await.map(drop),
                    Err(error) => Err(error),
                },
                limiter.check("ann").await.map(drop),
                limiter.peek("ann").await.map(drop),
                limiter.credit("ann", 1).await.map(drop),
                limiter.debit("ann", 2).await.map(drop),
                limiter.take_up_to("ann", 2).await.map(drop),
            ] {
                match answer {
                    Ok(()) => taken += 1,
                    Err(error) if error.is_corrupt_state() => corrupt += 1,
                    Err(error) => panic!("{quota:?}: {text}: {error:?}"),
                }
            }
            let others = limiter.peek("bob").await;
            assert!(others.is_ok(), "{quota:?}: {text}: {others:?}");
        }
        // How many of each there are depends on the seed.
        assert!(corrupt > 0 && taken > 0, "{corrupt} {taken}");
    }
}

/// Limiters in memory and on Redis, and the clock of both.
fn on_both_stores(server: &RedisServer, quota: Quota) -> ([Limiter; 2], Arc<ManualClock>) {
    let (store, clock) = store_with_clock(&server.url());
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let policy = Policy::new("login", quota).hold_for(LIFETIME);
    let in_memory = denying(memory, policy.clone());
    ([in_memory, denying(store, policy)], clock)
}

#[tokio::test]
async fn what_has_lapsed_is_charged_when_it_lapsed() {
    let day = Duration::from_secs(86_400);
    let month = FixedWindow::per_calendar_month(10);
    let bucket = TokenBucket::per_day(10);
    for (quota, before, after) in [
        // Taken on January 31, asked about on February 20.
        (month.try_into(), 30 * day, 20 * day),
        (bucket.try_into(), day, day + 2 * LIFETIME),
    ] {
        let server = RedisServer::start();
        let (limiters, clock) = on_both_stores(&server, quota.expect("a quota"));
        clock.advance(before);
        for limiter in &limiters {
            std::mem::forget(limiter.reserve("ann", 10).await.expect("a decision"));
            assert_eq!(remaining(limiter).await, 0);
        }
        clock.advance(2 * LIFETIME);
        for limiter in &limiters {
            assert_eq!(remaining(limiter).await, 0, "it has lapsed and is charged");
        }
        clock.advance(after);
        for limiter in &limiters {
            assert_eq!(remaining(limiter).await, 10);
            assert!(limiter.check("ann").await.expect("a decision").is_allowed());
            assert_eq!(remaining(limiter).await, 9);
        }
    }
}

#[tokio::test]
async fn a_hold_of_before_a_reset_takes_nothing_from_one_after_it() {
    let server = RedisServer::start();
    let (limiters, _clock) = on_both_stores(&server, hour(10));
    for limiter in limiters {
        // The clock stands, so all of it is of one instant.
        let before = limiter.reserve("ann", 6).await.expect("a decision");
        limiter.reset("ann").await.expect("forgotten");
        let after = limiter.reserve("ann", 6).await.expect("a decision");
        before.release().await.expect("a settlement");
        assert_eq!(remaining(&limiter).await, 4);
        after.settle(6).await.expect("a settlement");
        assert_eq!(remaining(&limiter).await, 4);
    }
}
