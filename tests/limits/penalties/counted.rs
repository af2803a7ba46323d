//! Bans in the metrics: each is counted once, by the process that started it.

use std::{sync::Barrier, thread};

use super::{check, check_of, doubling, is_banned, limiter, minutes, striking};
use crate::support::prelude::*;

/// Returns how many bans the policy `bans` has started.
fn started(limiter: &Limiter) -> u64 {
    let seen = limiter.metrics();
    let bans = seen.bans().find(|(policy, _)| *policy == "bans");
    bans.expect("the penalty").1
}

#[tokio::test]
async fn strikes_start_a_ban_once() {
    let (clock, limiter) = limiter(doubling());
    for (strikes, expected) in [(1, 0), (1, 0), (1, 1), (5, 1)] {
        let _ = limiter.strike("ann", strikes).await.expect("strikes");
        assert_eq!(started(&limiter), expected);
    }
    // Those who look or are denied start none.
    assert!(is_banned(&check(&limiter).await));
    let _ = limiter.peek("ann").await.expect("a decision");
    assert_eq!(started(&limiter), 1);
    clock.advance(minutes(5));
    let _ = limiter.strike("ann", 9).await.expect("strikes");
    let _ = limiter.strike("bob", 3).await.expect("strikes");
    assert_eq!(started(&limiter), 3);
    limiter.reset("ann").await.expect("a reset");
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(started(&limiter), 4);
}

#[tokio::test]
async fn a_ban_by_hand_is_counted_unless_the_caller_is_banned() {
    let (clock, limiter) = limiter(doubling());
    for minute in [1, 3, 2] {
        limiter.ban("ann", minutes(minute)).await.expect("a ban");
    }
    assert_eq!(started(&limiter), 1);
    let _ = limiter.strike("ann", 3).await.expect("strikes");
    assert_eq!(started(&limiter), 1);
    clock.advance(minutes(3));
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    assert_eq!(started(&limiter), 2);
}

/// The request whose denial is the last strike starts the ban, also if its cost can never fit.
#[tokio::test]
async fn denials_start_a_ban_once() {
    let (store, _) = manual_store();
    let limiter = limiter_of(store, striking(doubling()));
    let counts = [0, 0, 0, 1, 1, 1];
    for expected in counts {
        let _ = check(&limiter).await;
        assert_eq!(started(&limiter), expected);
    }
    for expected in [1, 1, 2, 2] {
        let _ = limiter.check_n("bob", 9).await.expect("a decision");
        assert_eq!(started(&limiter), expected);
    }
    let requests = limiter.metrics().requests;
    assert_eq!((requests.denied, requests.banned), (2, 3));
    assert_eq!(requests.impossible, 4);
}

#[tokio::test]
async fn prolonging_a_ban_starts_none() {
    let penalty = Penalty::after(1).lasting(minutes(5)).prolonging();
    let (clock, limiter) = limiter(penalty);
    let _ = limiter.strike("ann", 1).await.expect("a strike");
    for _ in 0..20 {
        clock.advance(minutes(1));
        assert!(is_banned(&check(&limiter).await));
        let _ = limiter.strike("ann", 1).await.expect("a strike");
    }
    assert_eq!(started(&limiter), 1);
}

#[tokio::test]
async fn a_shadow_policy_starts_none() {
    let bans = Policy::new("bans", Penalty::after(1)).shadow();
    let limiter = Limiter::new(MemoryStore::new(), bans);
    limiter.ban("ann", minutes(1)).await.expect("a ban");
    let _ = limiter.strike("bob", 1).await.expect("a strike");
    assert!(check(&limiter).await.is_allowed());
    assert_eq!(started(&limiter), 0);
}

/// Eight threads strike the same callers at once: by checks, by hand, and by bans.
#[test]
fn of_racing_strikes_one_starts_the_ban() {
    const THREADS: usize = 8;
    const CALLERS: u64 = 200;

    let policies = || {
        let api = Policy::new("api", FixedWindow::per_day(0));
        let penalty = Penalty::after(5).lasting(minutes(60));
        [api, Policy::new("bans", penalty).strike_on_denial()]
    };
    let store = MemoryStore::new();
    let limiters = [(); THREADS].map(|()| limiter_of(store.clone(), policies()));
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for (number, limiter) in limiters.iter().enumerate() {
            let barrier = &barrier;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("a runtime").block_on(async {
                    for caller in 0..CALLERS {
                        barrier.wait();
                        for _ in 0..3 {
                            let _ = limiter.check(caller).await.expect("a decision");
                        }
                        match number {
                            0 => limiter.ban(caller, minutes(60)).await.expect("a ban"),
                            _ => drop(limiter.strike(caller, 2).await.expect("strikes")),
                        }
                    }
                });
            });
        }
    });
    let bans = limiters.each_ref().map(started);
    assert_eq!(bans.iter().sum::<u64>(), CALLERS, "{bans:?}");
    let alone = limiters.iter().map(|limiter| limiter.metrics().requests);
    let all: u64 = alone.map(|requests| requests.total()).sum();
    assert_eq!(all, THREADS as u64 * 3 * CALLERS);
}

#[cfg(feature = "testing")]
mod over_redis {
    use std::time::Duration;

    use tokio::time::advance;
    use tower_throttle::{OnStoreFailure, RedisStore, TokenBucket, testing::SimulatedRedis};

    use super::*;

    fn process(redis: &SimulatedRedis, policies: impl IntoIterator<Item = Policy>) -> Limiter {
        let store = RedisStore::builder().simulated(redis).expect("a store");
        limiter_of(store, policies)
    }

    /// A ban that is started by strikes that a process had counted by itself, and repeats of its
    /// denial from the cache.
    #[tokio::test(start_paused = true)]
    async fn strikes_that_a_process_kept_start_a_ban_once() {
        let redis = SimulatedRedis::new();
        let penalty = Penalty::after(10).within(minutes(10));
        let networks = [redis.clone(), redis.over_another_network()];
        let [one, other] = networks.map(|redis| process(&redis, striking(penalty)));
        assert!(check(&one).await.is_allowed());
        // The first is one strike in Redis. The others are kept.
        for _ in 0..6 {
            assert!(!is_banned(&check(&one).await));
        }
        let _ = other.strike("ann", 7).await.expect("strikes");
        assert_eq!([&one, &other].map(started), [0, 0]);
        advance(Duration::from_millis(1_100)).await;
        for _ in 0..5 {
            assert!(is_banned(&check(&one).await));
            assert!(is_banned(&check(&other).await));
        }
        assert_eq!([&one, &other].map(started), [1, 0]);
    }

    /// While Redis fails, each process has buckets of its own. What it has seen goes on.
    #[tokio::test(start_paused = true)]
    async fn while_redis_fails_each_process_starts_its_own() {
        let redis = SimulatedRedis::new();
        let policies = || {
            let api = Policy::new("api", TokenBucket::per_hour(1));
            let bans = Policy::new("bans", Penalty::after(3)).strike_on_denial();
            [api, bans].map(|policy| policy.on_store_failure(OnStoreFailure::local()))
        };
        let networks = [redis.clone(), redis.over_another_network()];
        let [one, other] = networks.each_ref().map(|redis| process(redis, policies()));
        let _ = one.strike("ann", 3).await.expect("strikes");
        assert!(is_banned(&check(&one).await));
        for network in &networks {
            network.set_connected(false);
        }
        for limiter in [&one, &other] {
            while !is_banned(&check_of(limiter, "bob").await) {}
            let _ = limiter.check("ann").await.expect("a decision");
        }
        assert_eq!([&one, &other].map(started), [2, 1]);
    }
}
