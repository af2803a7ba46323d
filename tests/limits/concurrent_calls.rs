//! How many calls a process has in flight at once, and which checks wait.

use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, sleep},
};
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use crate::support::prelude::*;

/// At most this many checks are sent alone. One shared call may be in flight beside them.
const ALONE: u64 = 4;
/// The network delay in both directions.
const TRIP: Duration = Duration::from_millis(2);

/// Returns a limiter that has measured its server, which has no other work.
async fn limiter(redis: &SimulatedRedis, deadline: Duration) -> Limiter {
    let limiter = unknown(redis, deadline);
    let _ = limiter.check(0).await.expect("a decision");
    limiter
}

fn unknown(redis: &SimulatedRedis, deadline: Duration) -> Limiter {
    let store = RedisStore::builder().timeout(deadline);
    let policy = Policy::new("api", TokenBucket::per_day(1_000));
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    Limiter::new(store.simulated(redis).expect("a store"), policy)
}

const DEADLINE: Duration = Duration::from_millis(50);

/// Makes a check, and returns how long it took.
fn ask(limiter: &Limiter, key: u64) -> JoinHandle<Duration> {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        let asked = Instant::now();
        let _ = limiter.check(key).await.expect("a decision");
        asked.elapsed()
    })
}

async fn longest(asked: Vec<JoinHandle<Duration>>) -> Duration {
    let mut longest = Duration::ZERO;
    for asked in asked {
        longest = longest.max(asked.await.expect("no panic"));
    }
    longest
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
        let before = redis.served().calls;
        let rounds = 50;
        let workers = (0..few).map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let asked = Instant::now();
                for _ in 0..rounds {
                    let _ = limiter.check(key).await.expect("a decision");
                }
                asked.elapsed() / rounds
            })
        });
        assert_eq!(longest(workers.collect()).await, TRIP, "{few} at once");
        let calls = redis.served().calls - before;
        assert_eq!(calls, few * u64::from(rounds), "{few} at once");
    }
}

/// The bound holds for any number of checks, at any time.
#[tokio::test(start_paused = true)]
async fn at_most_five_calls_are_in_flight_on_a_connection() {
    let far = Duration::from_millis(50);
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        let redis = server();
        let limiter = limiter(&redis, 10 * far).await;
        redis.set_delay(far);
        let before = redis.served().calls;
        let mut asked = Vec::new();
        for key in 0..40 {
            asked.push(ask(&limiter, key));
            match pause.is_zero() {
                true => yield_now().await,
                false => sleep(pause).await,
            }
        }
        sleep(2 * far - 41 * pause).await;
        assert_eq!(
            redis.served().calls - before,
            ALONE + 1,
            "{pause:?} between"
        );
        assert!(longest(asked).await <= 4 * far);
    }
}

/// Checks that are sent alone take no lanes from checks that share calls.
#[tokio::test(start_paused = true)]
async fn many_concurrent_checks_are_answered_by_one_or_two_calls() {
    for (many, trips) in [(5, 1), (16, 1), (60, 1), (500, 2)] {
        let redis = server();
        let limiter = limiter(&redis, DEADLINE).await;
        let before = redis.served().calls;
        let asked = (0..many).map(|key| ask(&limiter, key)).collect();
        assert_eq!(longest(asked).await, trips * TRIP, "{many} at once");
        let calls = redis.served().calls - before;
        assert!(calls <= u64::from(trips) * ALONE + 1, "{calls} for {many}");
    }
}

/// Otherwise many processes together would send the server more than it can answer.
#[tokio::test(start_paused = true)]
async fn a_few_checks_on_a_slow_far_or_unknown_server_share_a_call() {
    let few = 8;
    let asked_of = async |limiter: &Limiter, redis: &SimulatedRedis| {
        let before = redis.served().calls;
        longest((0..few).map(|key| ask(limiter, key)).collect()).await;
        redis.served().calls - before
    };
    let redis = server();
    assert_eq!(asked_of(&unknown(&redis, DEADLINE), &redis).await, 2);

    let limiter = limiter(&redis, DEADLINE).await;
    assert_eq!(asked_of(&limiter, &redis).await, ALONE + 1);
    let slow = Duration::from_millis(5);
    redis.set_service_time(slow, Duration::ZERO);
    let _ = limiter.check(0).await.expect("a decision");
    assert_eq!(asked_of(&limiter, &redis).await, 2, "slow");
    redis.set_service_time(Duration::ZERO, Duration::ZERO);
    let _ = limiter.check(0).await.expect("a decision");
    assert_eq!(asked_of(&limiter, &redis).await, ALONE + 1, "quick again");
    redis.set_delay(2 * slow);
    let _ = limiter.check(0).await.expect("a decision");
    assert_eq!(asked_of(&limiter, &redis).await, 2, "far");
}

/// The callers poll for their answers only after all others have theirs.
#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_poll_its_answer_delays_no_other() {
    let redis = server();
    let limiter = limiter(&redis, DEADLINE).await;
    let mut held = Vec::new();
    for key in 0..ALONE {
        let limiter = limiter.clone();
        let mut check = Box::pin(async move { limiter.check(key).await });
        let polled = std::future::poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
        held.push(check);
    }
    for many in [1, 60] {
        let asked = (0..many).map(|key| ask(&limiter, 9 + key)).collect();
        assert!(longest(asked).await <= 2 * TRIP, "{many} at once");
    }
    for check in held {
        let _ = check.await.expect("a decision");
    }
}
