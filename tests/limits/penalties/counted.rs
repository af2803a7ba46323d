//! Bans in the metrics: each is counted once, by the process that started it.

use std::{sync::Barrier, thread};

use super::{ban, doubling, is_banned_now, limiter, minutes, strike};
use crate::support::prelude::*;

#[tokio::test]
async fn a_ban_by_strikes_or_by_hand_is_counted_when_it_starts() {
    let (clock, limiter) = limiter(doubling());
    for (strikes, expected) in [(1, 0), (1, 0), (1, 1), (5, 1)] {
        let _ = strike(&limiter, "ann", strikes).await;
        assert_eq!(bans_started(&limiter), expected);
    }
    // Callers that look or are denied start none.
    assert!(is_banned_now(&limiter, "ann").await);
    let _ = peek(&limiter, "ann").await;
    ban(&limiter, "ann", minutes(5)).await;
    assert_eq!(bans_started(&limiter), 1);
    clock.advance(minutes(5));
    let _ = strike(&limiter, "ann", 9).await;
    let _ = strike(&limiter, "bob", 3).await;
    assert_eq!(bans_started(&limiter), 3);
    limiter.reset("ann").await.expect("a reset");
    for minute in [1, 3, 2] {
        ban(&limiter, "ann", minutes(minute)).await;
        let _ = strike(&limiter, "ann", 3).await;
    }
    assert_eq!(bans_started(&limiter), 4);
    clock.advance(minutes(3));
    ban(&limiter, "ann", minutes(1)).await;
    assert_eq!(bans_started(&limiter), 5);
}

#[tokio::test]
async fn a_ban_that_is_prolonged_or_in_shadow_starts_none() {
    let penalty = Penalty::after(1).lasting(minutes(5));
    let (clock, prolonged) = limiter(penalty.prolonging());
    let _ = strike(&prolonged, "ann", 1).await;
    for _ in 0..20 {
        clock.advance(minutes(1));
        assert!(is_banned_now(&prolonged, "ann").await);
        let _ = strike(&prolonged, "ann", 1).await;
    }
    assert_eq!(bans_started(&prolonged), 1);

    let api = Policy::new("api", TokenBucket::per_second(5));
    let bans = Policy::new("bans", penalty).shadow();
    let shadow = limiter_of(MemoryStore::new(), [api, bans]);
    ban(&shadow, "ann", minutes(1)).await;
    let _ = strike(&shadow, "bob", 1).await;
    for caller in ["ann", "bob"] {
        let decision = check(&shadow, caller).await;
        assert!(decision.is_allowed());
        let denied = decision.shadow_denied().map(|policy| policy.name());
        assert_eq!(denied.collect::<Vec<_>>(), ["bans"]);
    }
    let seen = shadow.metrics();
    assert_eq!(seen.policy("bans").map(|bans| bans.shadow_denied), Some(2));
    assert_eq!(bans_started(&shadow), 0);
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
                            let _ = check(limiter, caller).await;
                        }
                        match number {
                            0 => ban(limiter, caller, minutes(60)).await,
                            _ => drop(strike(limiter, caller, 2).await),
                        }
                    }
                });
            });
        }
    });
    let bans = limiters.each_ref().map(bans_started);
    assert_eq!(bans.iter().sum::<u64>(), CALLERS, "{bans:?}");
    let alone = limiters.iter().map(|limiter| limiter.metrics().requests);
    let all: u64 = alone.map(|requests| requests.total()).sum();
    assert_eq!(all, THREADS as u64 * 3 * CALLERS);
}
