//! How many calls a process has in flight at once, and which checks wait.

use std::ops::Range;

use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use tower_throttle::testing::SimulatedRedis;

use crate::support::prelude::*;

/// At most this many checks are sent alone. One shared call may be in flight beside them.
const ALONE: u64 = 4;
/// The network delay in both directions.
const TRIP: Duration = ms(2);
const DEADLINE: Duration = ms(50);

/// Returns a limiter that has measured its server, which has no other work.
async fn limiter(redis: &SimulatedRedis, deadline: Duration) -> Limiter {
    let limiter = unknown(redis, deadline);
    let _ = check(&limiter, 0).await;
    limiter
}

fn unknown(redis: &SimulatedRedis, deadline: Duration) -> Limiter {
    let store = hasty().timeout(deadline);
    let policy = Policy::new("api", TokenBucket::per_day(1_000));
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    Limiter::new(store.simulated(redis).expect("a store"), policy)
}

/// Makes checks of these callers, so many in a row. Returns how long each took.
fn ask(limiter: &Limiter, callers: Range<u64>, rounds: u32) -> JoinSet<Duration> {
    let asked = callers.map(|key| {
        let limiter = limiter.clone();
        async move {
            let asked = Instant::now();
            for _ in 0..rounds {
                let _ = check(&limiter, key).await;
            }
            asked.elapsed() / rounds
        }
    });
    asked.collect()
}

/// Waits for these checks. Returns how long the longest took, and how many calls the server has
/// served since.
async fn longest(redis: &SimulatedRedis, asked: JoinSet<Duration>) -> (Duration, u64) {
    let before = redis.served().calls;
    let longest = asked.join_all().await.into_iter().max();
    (longest.expect("a check"), redis.served().calls - before)
}

fn server() -> SimulatedRedis {
    let redis = SimulatedRedis::new();
    redis.set_delay(TRIP / 2);
    redis
}

#[tokio::test(start_paused = true)]
async fn a_few_checks_on_a_fast_server_have_a_call_each_and_none_waits() {
    let redis = server();
    let limiter = limiter(&redis, DEADLINE).await;
    for few in 1..=ALONE {
        let asked = longest(&redis, ask(&limiter, 0..few, 50)).await;
        assert_eq!(asked, (TRIP, 50 * few), "{few} at once");
    }
}

/// The bound holds for any number of checks, at any time.
#[tokio::test(start_paused = true)]
async fn at_most_five_calls_are_in_flight_on_a_connection() {
    let far = ms(50);
    for pause in [ms(0), ms(1)] {
        let redis = server();
        let limiter = limiter(&redis, 10 * far).await;
        redis.set_delay(far);
        let before = redis.served().calls;
        let mut asked = Vec::new();
        for key in 0..40 {
            asked.push(ask(&limiter, key..key + 1, 1));
            match pause.is_zero() {
                true => yield_now().await,
                false => sleep(pause).await,
            }
        }
        sleep(2 * far - 41 * pause).await;
        let calls = redis.served().calls - before;
        assert_eq!(calls, ALONE + 1, "{pause:?} between");
        for asked in asked {
            assert!(longest(&redis, asked).await.0 <= 4 * far);
        }
    }
}

/// Checks that are sent alone take no lanes from checks that share calls.
#[tokio::test(start_paused = true)]
async fn many_concurrent_checks_are_answered_by_one_or_two_calls() {
    for (many, trips) in [(5, 1), (16, 1), (60, 1), (500, 2)] {
        let redis = server();
        let limiter = limiter(&redis, DEADLINE).await;
        let (longest, calls) = longest(&redis, ask(&limiter, 0..many, 1)).await;
        assert_eq!(longest, trips * TRIP, "{many} at once");
        assert!(calls <= u64::from(trips) * ALONE + 1, "{calls} for {many}");
    }
}

/// Otherwise many processes together would send the server more than it can answer.
#[tokio::test(start_paused = true)]
async fn a_few_checks_on_a_slow_far_or_unknown_server_share_a_call() {
    let redis = server();
    let unknown = unknown(&redis, DEADLINE);
    assert_eq!(longest(&redis, ask(&unknown, 0..8, 1)).await.1, 2);
    let limiter = limiter(&redis, DEADLINE).await;
    let slow = ms(5);
    for (what, delay, service, calls) in [
        ("near", TRIP / 2, ms(0), ALONE + 1),
        ("slow", TRIP / 2, slow, 2),
        ("quick again", TRIP / 2, ms(0), ALONE + 1),
        ("far", 2 * slow, ms(0), 2),
    ] {
        redis.set_delay(delay);
        redis.set_service_time(service, Duration::ZERO);
        let _ = check(&limiter, 0).await;
        let asked = longest(&redis, ask(&limiter, 0..8, 1)).await;
        assert_eq!(asked.1, calls, "{what}");
    }
}

/// The callers poll for their answers only after all others have theirs.
#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_poll_its_answer_delays_no_other() {
    let redis = server();
    let limiter = limiter(&redis, DEADLINE).await;
    let mut held: Vec<_> = (0..ALONE)
        .map(|key| Box::pin(check(&limiter, key)))
        .collect();
    assert!(held.iter_mut().all(|check| poll(check).is_pending()));
    for many in [1, 60] {
        let asked = ask(&limiter, 9..9 + many, 1);
        let asked = longest(&redis, asked).await;
        assert!(asked.0 <= 2 * TRIP, "{many} at once");
    }
    for check in held {
        let _ = check.await;
    }
}
