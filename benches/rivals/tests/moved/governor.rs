//! Beside governor: docs/from-governor.md.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use governor::{
    DefaultKeyedRateLimiter, InsufficientCapacity, Quota, RateLimiter,
    clock::{Clock as _, FakeRelativeClock},
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::keyed::HashMapStateStore,
};
use tower_throttle::{Limiter, MemoryStore, StoreError, TokenBucket, Verdict};

use super::assert_shown;
use crate::{limiters::manual_store, random::Random};

const PAGE: &str = include_str!("../../../../docs/from-governor.md");

fn governor_limiter() -> DefaultKeyedRateLimiter<String> {
    let limit = NonZeroU32::new(60).expect("not 0");
    let burst = NonZeroU32::new(5).expect("not 0");
    RateLimiter::keyed(Quota::per_hour(limit).allow_burst(burst))
}

fn governor_admits(limiter: &DefaultKeyedRateLimiter<String>, user: &String) -> bool {
    limiter.check_key(user).is_ok()
}

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new(), TokenBucket::per_hour(60).burst(5))
}

fn admits(limiter: &Limiter, user: &str) -> Result<bool, StoreError> {
    Ok(limiter.check_now(user)?.is_allowed())
}

async fn wait_for(limiter: &Limiter, user: &str) -> Result<bool, StoreError> {
    let permit = limiter.acquire(user, Duration::from_secs(30)).await?;
    Ok(permit.is_allowed())
}

#[test]
fn the_page_shows_what_is_tested() {
    let before = ["fn governor_limiter", "fn governor_admits"];
    let after = ["fn limiter", "fn admits", "async fn wait_for"];
    assert_shown(PAGE, include_str!("governor.rs"), &before);
    assert_shown(PAGE, include_str!("governor.rs"), &after);
}

#[test]
fn both_limiters_of_the_page_admit_the_same_users() {
    let (theirs, ours) = (governor_limiter(), limiter());
    let mut random = Random::new();
    for _ in 0..200 {
        let user = format!("user {}", random.below(10));
        let expected = governor_admits(&theirs, &user);
        assert_eq!(admits(&ours, &user).expect("a decision"), expected);
    }
}

/// The trap: what reads governor's result reads no denial here.
#[test]
fn a_denial_is_an_error_there_and_a_decision_here() {
    let (theirs, ours, user) = (governor_limiter(), limiter(), "ann".to_owned());
    for _ in 0..5 {
        assert!(theirs.check_key(&user).is_ok());
        assert!(ours.check_now(&user).is_ok());
    }
    assert!(theirs.check_key(&user).is_err());
    let decision = ours.check_now(&user).expect("a decision");
    assert!(!decision.is_allowed());
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not 0")
}

/// The rows of the page's table of quotas.
fn quotas() -> [(Quota, TokenBucket); 5] {
    let two_seconds = Duration::from_secs(2);
    let every = |period| Quota::with_period(period).expect("a period");
    [
        (Quota::per_second(number(10)), TokenBucket::per_second(10)),
        (
            Quota::per_minute(number(30)).allow_burst(number(5)),
            TokenBucket::per_minute(30).burst(5),
        ),
        (Quota::per_hour(number(60)), TokenBucket::per_hour(60)),
        (every(two_seconds), TokenBucket::new(1, two_seconds)),
        (
            every(two_seconds).allow_burst(number(3)),
            TokenBucket::new(1, two_seconds).burst(3),
        ),
    ]
}

/// governor's limiter in a time that a test sets.
type Timed = RateLimiter<u64, HashMapStateStore<u64>, FakeRelativeClock, NoOpMiddleware<Nanos>>;

#[tokio::test]
async fn equal_quotas_decide_alike_at_any_time_and_for_any_number_of_units() {
    let mut random = Random::new();
    for (theirs, ours) in quotas() {
        let interval_ms = theirs.replenish_interval().as_millis() as u64;
        let burst = u64::from(theirs.burst_size().get());
        let time = FakeRelativeClock::default();
        let state: HashMapStateStore<u64> = HashMapStateStore::default();
        let governor: Timed = RateLimiter::new(theirs, state, time.clone());
        let (store, clock) = manual_store();
        let limiter = Limiter::new(store, ours);
        for _ in 0..2_000 {
            if random.percent(50) {
                let pause = Duration::from_millis(random.below(3 * interval_ms));
                time.advance(pause);
                clock.advance(pause);
            }
            let (key, units) = (random.below(3), random.between(1, burst + 1));
            let expected = governor.check_key_n(&key, number(units as u32));
            let decision = limiter.check_n(key, units).await.expect("a decision");
            let seen = (decision.verdict(), decision.retry_after());
            let expected = match expected {
                Ok(Ok(())) => (Verdict::Allowed, None),
                Ok(Err(until)) => (Verdict::Denied, Some(until.wait_time_from(time.now()))),
                Err(InsufficientCapacity(_)) => (Verdict::Impossible, None),
            };
            assert_eq!(seen, expected, "{theirs:?}, {units} of user {key}");
        }
    }
}

#[tokio::test]
async fn both_wait_for_their_turn() {
    let interval = Duration::from_millis(20);
    let quota = Quota::with_period(interval).expect("a period");
    let (theirs, started) = (RateLimiter::keyed(quota), Instant::now());
    for _ in 0..4 {
        theirs.until_key_ready(&"ann").await;
    }
    assert!(started.elapsed() >= 3 * interval);

    let ours = Limiter::new(MemoryStore::new(), TokenBucket::new(1, interval));
    let started = Instant::now();
    for _ in 0..4 {
        assert!(wait_for(&ours, "ann").await.expect("an answer"));
    }
    assert!(started.elapsed() >= 3 * interval);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_a_denial_here() {
    let limiter = limiter();
    for _ in 0..5 {
        assert!(wait_for(&limiter, "ann").await.expect("an answer"));
    }
    let started = Instant::now();
    assert!(!wait_for(&limiter, "ann").await.expect("an answer"));
    assert!(started.elapsed() < Duration::from_secs(30));
}
