//! Checks have no timers of their own, but none waits beyond its deadline. A simulated server in
//! paused time shows by how much exactly.

use fred::{
    interfaces::ClientLike,
    types::{Builder, config::Config},
};
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep, timeout},
};
use tower_throttle::testing::SimulatedRedis;

use crate::prelude::*;
use crate::support::{
    limiters::{later, wrapped},
    rate::at_rate,
};

const MS: Duration = Duration::from_millis(1);

/// The server answers after this long, which is far too late.
const FROZEN: Duration = Duration::from_secs(3_600);

fn policy(quota: TokenBucket) -> Policy {
    Policy::new("api", quota).on_store_failure(OnStoreFailure::Deny)
}

fn limiter(redis: &SimulatedRedis, deadline: Duration, quota: TokenBucket) -> Limiter {
    let store = hasty().timeout(deadline);
    Limiter::new(store.simulated(redis).expect("a store"), policy(quota))
}

/// The outcomes of checks, each of which ended by its deadline.
#[derive(Debug, Default)]
struct Seen {
    decided: usize,
    overloaded: usize,
    failed: usize,
    /// How many of all took as long as they may.
    waited: usize,
}

impl Seen {
    async fn of(checks: JoinSet<(Option<StoreError>, Duration)>, deadline: Duration) -> Self {
        let mut seen = Self::default();
        for (error, took) in checks.join_all().await {
            // Timers tick in milliseconds.
            assert!(took <= deadline + MS, "{took:?}: {error:?}");
            seen.waited += usize::from(took >= deadline);
            match error {
                None => seen.decided += 1,
                Some(error) if error.is_overloaded() => seen.overloaded += 1,
                Some(error) => {
                    assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
                    seen.failed += 1;
                }
            }
        }
        seen
    }
}

/// Makes a check of this caller in a task of its own.
fn ask(checks: &mut JoinSet<(Option<StoreError>, Duration)>, limiter: &Limiter, caller: u64) {
    let limiter = limiter.clone();
    checks.spawn(async move {
        let asked = Instant::now();
        let error = limiter.check(caller).await.err();
        (error, asked.elapsed())
    });
}

/// Although earlier checks already hang, and if it enters the queue behind later deadlines.
#[tokio::test(start_paused = true)]
async fn a_check_queued_at_a_hanging_server_waits_no_longer_than_its_deadline() {
    let deadline = 1_000 * MS;
    let redis = SimulatedRedis::new();
    redis.set_delay(FROZEN);
    let store = hasty().timeout(deadline);
    let store = store.simulated(&redis).expect("a store");
    let late = wrapped(store.clone(), move |store, check| {
        later(store.check(check), sleep(deadline / 2))
    });
    let policy = || policy(TokenBucket::per_second(10));
    let limiters = [Limiter::new(store, policy()), Limiter::new(late, policy())];
    let mut checks = [JoinSet::new(), JoinSet::new()];
    for caller in 0..40 {
        ask(&mut checks[0], &limiters[0], caller);
        ask(&mut checks[1], &limiters[1], caller);
        sleep(deadline / 50).await;
    }
    let [prompt, late] = checks;
    let seen = Seen::of(prompt, deadline).await;
    assert_eq!((seen.failed, seen.waited), (40, 40), "{seen:?}");
    assert_eq!(Seen::of(late, deadline).await.failed, 40);
}

/// Makes checks of as many callers at a steady rate, and calls `each` before each of them.
async fn steadily(
    limiter: &Limiter,
    per_s: u64,
    lasts: Duration,
    mut each: impl FnMut(u64),
) -> JoinSet<(Option<StoreError>, Duration)> {
    let mut checks = JoinSet::new();
    let call = |number| {
        let asked = number + 1;
        each(asked);
        ask(&mut checks, limiter, FIRST_CALLER + asked);
    };
    at_rate(per_s, lasts, call).await;
    checks
}

/// Those before it are of tests.
const FIRST_CALLER: u64 = 1_000;

/// More checks come than the server can answer: it decides as many as it can.
#[tokio::test(start_paused = true)]
async fn an_overloaded_server_gets_only_checks_that_it_can_answer_in_time() {
    let (deadline, takes) = (1_000 * MS, 100 * MS);
    let redis = SimulatedRedis::new();
    redis.set_service_time(takes, Duration::ZERO);
    let limiter = limiter(&redis, deadline, TokenBucket::per_second(10));
    // In each call it decides at most 128.
    let checks = steadily(&limiter, 2_000, 40 * takes, |_| {}).await;
    let asked = checks.len();
    let seen = Seen::of(checks, deadline).await;
    assert!(seen.decided >= 40 * 128 * 9 / 10, "{seen:?}");
    assert!(seen.overloaded >= 2_000, "{seen:?}");
    // The first calls of all are sent before it is known how long they take. If all checks were
    // sent, there would be nearly as many as decisions.
    assert!(50 * seen.failed < seen.decided, "{seen:?} of {asked}");
}

/// Checks make way for the refund, and it is sent although its answer would be late.
#[tokio::test(start_paused = true)]
async fn a_refund_during_an_overload_arrives() {
    const TAKEN: u64 = 60;
    let deadline = 1_000 * MS;
    let redis = SimulatedRedis::new();
    let limiter = limiter(&redis, deadline, TokenBucket::without_refill(10));
    for caller in 0..TAKEN {
        let decision = limiter.check(caller).await.expect("a decision");
        assert!(decision.is_allowed());
    }
    redis.set_service_time(100 * MS, Duration::ZERO);
    let mut refunds = JoinSet::new();
    let checks = steadily(&limiter, 3_000, 3_000 * MS, |asked| {
        if asked % 150 == 0 {
            let limiter = limiter.clone();
            refunds.spawn(async move { limiter.credit(asked / 150 - 1, 1).await });
        }
    })
    .await;
    let seen = Seen::of(checks, deadline).await;
    assert!(seen.overloaded >= 3_000, "{seen:?}");
    refunds.join_all().await;
    redis.set_service_time(Duration::ZERO, Duration::ZERO);
    sleep(2 * deadline).await;
    for caller in 0..TAKEN {
        let peek = limiter.peek(caller).await.expect("a decision");
        let policy = peek.policies().next().expect("a policy");
        assert_eq!(policy.remaining(), 10, "caller {caller}");
    }
}

/// The first check finds the failure. From then on, no check fails as overloaded.
#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_a_failure_and_not_an_overload() {
    let deadline = 50 * MS;
    let redis = SimulatedRedis::new();
    redis.set_delay(FROZEN);
    let store = hasty().timeout(deadline).max_in_flight(8);
    let store = store.simulated(&redis).expect("a store");
    let limiter = Limiter::new(store, policy(TokenBucket::per_hour(3)));
    let error = limiter.check("ann").await.expect_err("no answer");
    assert!(error.is_timeout(), "{error:?}");
    let mut checks = JoinSet::new();
    for _ in 0..100 {
        ask(&mut checks, &limiter, 0);
    }
    let seen = Seen::of(checks, deadline).await;
    assert_eq!(seen.failed, 100, "{seen:?}");
}

/// A process that stalls finds its checks late although the server is healthy.
#[tokio::test]
async fn a_check_that_is_late_before_it_is_sent_is_not_a_failure_of_the_server() {
    let server = RedisServer::start();
    let client = Builder::from_config(Config::from_url(&server.url()).expect("a URL"));
    let client = client.build().expect("a client");
    client.init().await.expect("a connection");
    let store = |deadline| {
        let builder = hasty().timeout(deadline);
        builder.client(client.clone()).expect("a store")
    };
    let policy = policy(TokenBucket::per_second(10));
    let late = Limiter::new(store(Duration::from_nanos(1)), policy.clone());
    for number in 0..100 {
        let error = late.check("ann").await.expect_err("no time");
        assert!(error.is_overloaded(), "{number}: {error:?}");
        late.reset("ann").await.expect_err("no time");
    }
    assert!(server.keys().is_empty());
    let stats = server.command(&["INFO", "commandstats"]);
    for command in ["cmdstat_evalsha", "cmdstat_del"] {
        assert!(!stats.contains(command), "{stats}");
    }
    let in_time = Limiter::new(store(DEADLINE), policy);
    assert!(in_time.check("ann").await.expect("a decision").is_allowed());
}

/// The runtime has not ended, but nothing drives its tasks.
#[test]
fn a_stalled_runtime_delays_no_caller_of_another() {
    let server = RedisServer::start();
    let still = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let limiter = still.block_on(async {
        let store = hasty().timeout(300 * MS);
        let store = store.connect(&server.url()).expect("a store");
        let limiter = Limiter::new(store, policy(TokenBucket::per_second(10)));
        eventually_async("a connection", || async { limiter.check(0).await.is_ok() }).await;
        limiter
    });
    Runtime::new().expect("a runtime").block_on(async {
        let mut checks = JoinSet::new();
        for caller in 0..20_u64 {
            let limiter = limiter.clone();
            checks.spawn(async move { limiter.check(caller).await });
        }
        let answers = timeout(DEADLINE, checks.join_all()).await;
        for answer in answers.expect("all are answered") {
            let error = answer.expect_err("no answer");
            assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
        }
    });
    drop(still);
}
