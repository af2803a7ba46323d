//! Processes that share a simulated Redis, with cached denials.

use tokio::time::{Instant, advance};
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use super::{ban, doubling, is_banned, is_banned_now, minutes, strike, strikes_left, striking};
use crate::support::prelude::*;

fn process(redis: &SimulatedRedis, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let redis = redis.over_another_network();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    limiter_of(store, policies)
}

const TENTH: Duration = ms(100);

/// Denials that a process repeats by itself are strikes, too. The caller may be denied `after`
/// times, and for a second in each process.
#[tokio::test(start_paused = true)]
async fn a_client_that_hammers_three_processes_is_banned_in_time() {
    for (after, pause_ms) in [(3, 100), (20, 10), (100, 3), (1_000, 7)] {
        let redis = SimulatedRedis::new();
        let penalty = Penalty::after(after).within(minutes(10));
        let processes = [(); 3].map(|()| process(&redis, striking(penalty)));
        assert!(check(&processes[0], "ann").await.is_allowed());
        let mut denials = 0;
        let began = Instant::now();
        'hammering: loop {
            for limiter in &processes {
                let decision = check(limiter, "ann").await;
                if is_banned(&decision) {
                    break 'hammering;
                }
                denials += 1;
                advance(ms(pause_ms)).await;
            }
            assert!(began.elapsed() < minutes(9), "{denials} denials");
        }
        let a_second_in_each = 1_000 / pause_ms;
        assert!(denials + 1 >= after, "after {after}: {denials}");
        let is_soon = denials <= after + a_second_in_each;
        assert!(is_soon, "after {after}: {denials}");
        // All processes know it.
        for limiter in &processes {
            advance(Duration::from_secs(1)).await;
            assert!(is_banned_now(limiter, "ann").await);
        }
    }
}

/// One process: exactly so many denials, most of which Redis never saw by itself.
#[tokio::test(start_paused = true)]
async fn the_strikes_of_one_process_are_counted_exactly() {
    let redis = SimulatedRedis::new();
    let limiter = process(&redis, striking(Penalty::after(50)));
    assert!(check(&limiter, "ann").await.is_allowed());
    let mut sources = Vec::new();
    for denial in 1..=50 {
        let decision = check(&limiter, "ann").await;
        assert_eq!(is_banned(&decision), denial == 50);
        assert_eq!(strikes_left(&decision), 50 - denial);
        sources.push(decision.source());
        advance(ms(1)).await;
    }
    let asked = sources.iter().filter(|source| **source == Source::Store);
    assert_eq!(asked.count(), 2, "the first denial, and the ban");
}

/// Others come meanwhile, whose cached denials end earlier or later.
#[tokio::test(start_paused = true)]
async fn other_callers_do_not_lose_a_callers_strikes() {
    let redis = SimulatedRedis::new();
    let limiter = process(&redis, striking(Penalty::after(1_000)));
    for caller in ["ann", "bob"] {
        assert!(check(&limiter, caller).await.is_allowed());
    }
    let mut denials = 0;
    for second in 0..5 {
        for _ in 0..10 {
            denials += 1;
            let _ = check(&limiter, "ann").await;
            advance(TENTH).await;
            if second % 2 == 0 {
                let _ = check(&limiter, "bob").await;
            }
        }
        // The table of denials is known to have ended by another caller first.
        let _ = check(&limiter, "eve").await;
    }
    let decision = check(&limiter, "ann").await;
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(strikes_left(&decision), 1_000 - denials - 1);
}

/// A caller that pauses loses them, and so does a reset. Strikes by hand leave them: they are those
/// of an earlier denial, whatever voids it.
#[tokio::test(start_paused = true)]
async fn kept_strikes_are_lost_by_a_pause_or_reset_and_by_nothing_else() {
    for (what, left) in [
        ("pause", 998),
        ("reset", 999),
        ("strike", 1_000 - 6 - 10 - 1),
    ] {
        let limiter = process(&SimulatedRedis::new(), striking(Penalty::after(1_000)));
        assert!(check(&limiter, "ann").await.is_allowed());
        // Redis sees the first denial, and the process keeps five.
        for _ in 0..6 {
            let _ = check(&limiter, "ann").await;
        }
        match what {
            "pause" => advance(Duration::from_secs(2)).await,
            "reset" => {
                limiter.reset("ann").await.expect("a reset");
                assert!(check(&limiter, "ann").await.is_allowed());
            }
            _ => drop(strike(&limiter, "ann", 10).await),
        }
        let decision = check(&limiter, "ann").await;
        assert_eq!(decision.source(), Source::Store, "{what}");
        assert_eq!(strikes_left(&decision), left, "{what}");
    }
}

/// A ban that is started by strikes that a process had kept, and repeats of its denial.
#[tokio::test(start_paused = true)]
async fn strikes_that_a_process_kept_start_a_ban_once() {
    let redis = SimulatedRedis::new();
    let penalty = Penalty::after(10).within(minutes(10));
    let [one, other] = [(); 2].map(|()| process(&redis, striking(penalty)));
    assert!(check(&one, "ann").await.is_allowed());
    // The first is one strike in Redis. The others are kept.
    for _ in 0..6 {
        assert!(!is_banned_now(&one, "ann").await);
    }
    let _ = strike(&other, "ann", 7).await;
    assert_eq!([&one, &other].map(bans_started), [0, 0]);
    advance(ms(1_100)).await;
    for _ in 0..5 {
        assert!(is_banned_now(&one, "ann").await);
        assert!(is_banned_now(&other, "ann").await);
    }
    assert_eq!([&one, &other].map(bans_started), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_cached_denial_of_a_banned_caller_is_a_strike() {
    let redis = SimulatedRedis::new();
    let penalty = Penalty::after(1_000).lasting(ms(500));
    let limiter = process(&redis, striking(penalty));
    ban(&limiter, "ann", ms(500)).await;
    for _ in 0..50 {
        assert!(is_banned_now(&limiter, "ann").await);
        advance(ms(10)).await;
    }
    assert_eq!(strikes_left(&check(&limiter, "ann").await), 1_000);
}

#[tokio::test(start_paused = true)]
async fn bans_and_resets_are_felt_at_once_here_and_within_a_second_elsewhere() {
    let redis = SimulatedRedis::new();
    let bans = || [Policy::new("bans", doubling())];
    let (here, elsewhere) = (process(&redis, bans()), process(&redis, bans()));
    for limiter in [&here, &elsewhere] {
        assert!(check(limiter, "ann").await.is_allowed());
    }
    ban(&here, "ann", minutes(60)).await;
    for limiter in [&here, &elsewhere] {
        assert!(is_banned_now(limiter, "ann").await);
    }
    here.reset("ann").await.expect("a reset");
    assert!(check(&here, "ann").await.is_allowed());
    assert_eq!(check(&elsewhere, "ann").await.source(), Source::Cache);
    advance(Duration::from_secs(1)).await;
    assert!(check(&elsewhere, "ann").await.is_allowed());
}

/// A denial that another policy made is cached when the ban comes.
#[tokio::test(start_paused = true)]
async fn a_ban_voids_other_cached_denials_here() {
    let redis = SimulatedRedis::new();
    let limiter = process(&redis, striking(doubling()));
    assert!(check(&limiter, "ann").await.is_allowed());
    for source in [Source::Store, Source::Cache] {
        let denied = check(&limiter, "ann").await;
        assert_eq!((denied.source(), is_banned(&denied)), (source, false));
    }
    ban(&limiter, "ann", minutes(90)).await;
    let banned = check(&limiter, "ann").await;
    assert_eq!((banned.source(), is_banned(&banned)), (Source::Store, true));
    assert_eq!(banned.retry_after(), Some(minutes(90)));
}

fn failing(choice: OnStoreFailure) -> (SimulatedRedis, Limiter) {
    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).expect("a store");
    let bans = Policy::new("bans", Penalty::after(4).lasting(minutes(5)));
    let limiter = limiter_of(store, [bans.on_store_failure(choice)]);
    (redis, limiter)
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_was_seen_goes_on_while_the_store_fails() {
    for choice in [OnStoreFailure::local(), OnStoreFailure::share_of(2)] {
        let (redis, limiter) = failing(choice);
        let _ = strike(&limiter, "ann", 4).await;
        assert!(is_banned_now(&limiter, "ann").await);
        // A reset lifts a ban in this process, too.
        ban(&limiter, "bob", minutes(60)).await;
        assert!(is_banned_now(&limiter, "bob").await);
        limiter.reset("bob").await.expect("a reset");
        redis.set_connected(false);
        advance(minutes(5) - ms(1)).await;
        let banned = check(&limiter, "ann").await;
        assert_eq!((banned.source(), is_banned(&banned)), (Source::Local, true));
        assert!(banned.retry_after() <= Some(ms(1)));
        assert!(check(&limiter, "bob").await.is_allowed());
        advance(ms(2)).await;
        assert!(check(&limiter, "ann").await.is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_strikes_and_bans_by_hand_count_here() {
    for (choice, strikes) in [
        (OnStoreFailure::local(), 4),
        (OnStoreFailure::share_of(2), 2),
        (OnStoreFailure::share_of(100), 1),
    ] {
        let (redis, limiter) = failing(choice);
        redis.set_connected(false);
        for _ in 0..strikes {
            assert!(check(&limiter, "ann").await.is_allowed());
            let _ = strike(&limiter, "ann", 1).await;
        }
        assert!(is_banned_now(&limiter, "ann").await);
        let error = limiter.ban("bob", minutes(1)).await.expect_err("no store");
        assert!(error.is_unavailable(), "{error}");
        assert!(is_banned_now(&limiter, "bob").await);
    }
}

/// Denials of local buckets are strikes in local buckets, and each process starts bans of its own.
#[tokio::test(start_paused = true)]
async fn denials_are_strikes_while_the_store_fails() {
    let redis = SimulatedRedis::new();
    let networks = [redis.clone(), redis.over_another_network()];
    let limiters = networks.each_ref().map(|redis| {
        let store = RedisStore::builder().simulated(redis).expect("a store");
        limiter_of(store, striking(Penalty::after(3)))
    });
    for (limiter, network) in limiters.iter().zip(&networks) {
        let _ = strike(limiter, "eve", 3).await;
        assert!(is_banned_now(limiter, "eve").await);
        network.set_connected(false);
        assert!(check(limiter, "ann").await.is_allowed());
        for left in [2, 1] {
            assert_eq!(strikes_left(&check(limiter, "ann").await), left);
        }
        assert!(is_banned_now(limiter, "ann").await);
        let _ = check(limiter, "eve").await;
    }
    assert_eq!(limiters.each_ref().map(bans_started), [2, 1]);
}
