//! How processes tell Redis which permits they hold: in few calls, and exactly, even if calls
//! are lost.

use std::collections::BTreeSet;

use tokio::time::{Instant, sleep, timeout};
use tower_throttle::testing::SimulatedRedis;

use crate::prelude::*;

const LIFETIME: Duration = Duration::from_secs(30);
const LIMIT: u64 = 10_000;

fn held() -> Policy {
    Policy::new("held", Concurrency::new(LIMIT).lifetime(LIFETIME))
        .on_store_failure(OnStoreFailure::Deny)
}

/// Returns a process of its own, over a network of its own.
fn process(redis: &SimulatedRedis, policy: Policy) -> (Limiter, SimulatedRedis) {
    let network = redis.over_another_network();
    let store = RedisStore::builder().simulated(&network).expect("a store");
    (Limiter::new(store, policy), network)
}

async fn taken(limiter: &Limiter) -> u64 {
    taken_of(limiter, "ann").await
}

async fn taken_of(limiter: &Limiter, caller: &str) -> u64 {
    let peek = peek(limiter, caller).await;
    let policy = peek.policies().next().expect("a policy");
    policy.capacity() - policy.remaining()
}

#[tokio::test(start_paused = true)]
async fn one_call_renews_all_permits_of_a_key() {
    let redis = SimulatedRedis::new();
    let (limiter, _) = process(&redis, held());
    let permits = hold(&limiter, 1_000).await;
    let before = redis.served().calls;
    sleep(10 * LIFETIME).await;
    // Each pause is a quarter to a third of the lifetime.
    let calls = redis.served().calls - before;
    assert!((29..=41).contains(&calls), "{calls} calls in ten lifetimes");
    assert_eq!(taken(&limiter).await, 1_000);
    drop(permits);
    sleep(ms(1)).await;
    let before = redis.served().calls;
    sleep(10 * LIFETIME).await;
    assert_eq!(redis.served().calls, before, "nothing is held");
}

#[tokio::test(start_paused = true)]
async fn permits_that_are_dropped_together_come_back_in_two_calls() {
    let redis = SimulatedRedis::new();
    redis.set_delay(ms(1));
    let (limiter, _) = process(&redis, held());
    let permits = hold(&limiter, 1_000).await;
    let before = redis.served().calls;
    drop(permits);
    sleep(ms(10)).await;
    assert_eq!(redis.served().calls - before, 2);
    assert_eq!(taken(&limiter).await, 0);
}

/// The check took a permit, and its deadline passed before the answer came.
#[tokio::test(start_paused = true)]
async fn a_permit_whose_answer_is_lost_comes_back_at_once() {
    let redis = SimulatedRedis::new();
    let (limiter, network) = process(&redis, held());
    let (other, _) = process(&redis, held());
    let kept = hold(&limiter, 3).await;
    network.set_delay(ms(30));
    let lost = limiter.acquire("ann", Duration::ZERO).await;
    assert!(lost.expect_err("lost").is_timeout());
    assert_eq!(taken(&other).await, 4, "it was taken");
    network.set_delay(ms(10));
    sleep(ms(100)).await;
    assert_eq!(taken(&other).await, 3);
    sleep(3 * LIFETIME).await;
    assert_eq!(taken(&other).await, 3);
    drop(kept);
}

/// Callers of several runtimes hold permits, and all runtimes but one end.
#[test]
fn permits_are_renewed_after_another_runtime_has_ended() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let lifetime = ms(300);
    let policy = || Policy::new("held", Concurrency::new(LIMIT).lifetime(lifetime));
    let clock = Arc::new(ManualClock::new());
    // The runtimes that callers come from, and those whose permits are kept.
    for (callers, kept) in [("bab", "ba"), ("aba", "b"), ("abcb", "b"), ("ab", "b")] {
        let stays = runtime();
        let store = patient().clock(clock.clone());
        let store = stays.block_on(async { store.connect(&server.url()) });
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let in_redis = denying(store.expect("a store"), policy());
        for limiter in [in_redis, denying(memory, policy())] {
            let (a, c) = (runtime(), runtime());
            let mut permits = Vec::new();
            for caller in callers.chars() {
                let runtime = match caller {
                    'a' => &a,
                    'b' => &stays,
                    _ => &c,
                };
                let permit = runtime.block_on(limiter.acquire(callers, Duration::ZERO));
                permits.push((caller, permit.expect("a decision")));
            }
            permits.retain(|(caller, _)| kept.contains(*caller));
            drop((a, c));
            // All would have expired, so they are counted again when they are renewed.
            clock.advance(3 * lifetime);
            let shown = format!("{} permits of {callers}, kept {kept}", permits.len());
            stays.block_on(eventually_async(&shown, async || {
                taken_of(&limiter, callers).await == permits.len() as u64
            }));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_dead_process_are_free_after_a_lifetime() {
    let redis = SimulatedRedis::new();
    let few = || Policy::new("held", Concurrency::new(5).lifetime(LIFETIME));
    let (limiter, network) = process(&redis, few());
    let (other, _) = process(&redis, few());
    let gone = hold(&limiter, 3).await;
    let began = Instant::now();
    network.set_connected(false);
    sleep(ms(1_000)).await;
    let living = hold(&other, 2).await;
    let denied = other.acquire("ann", Duration::ZERO).await;
    let wait = denied.expect("a decision").decision().retry_after();
    let wait = wait.expect("a time");
    // The wait is exact if the other process stays gone.
    sleep(wait - ms(1)).await;
    let denied = other.acquire("ann", Duration::ZERO).await;
    assert!(!denied.expect("a decision").is_allowed());
    sleep(ms(1)).await;
    drop(hold(&other, 1).await);
    assert!(began.elapsed() <= LIFETIME + ms(1), "{:?}", began.elapsed());
    drop((gone, living));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_permits_of_another_process_polls_seldom() {
    let redis = SimulatedRedis::new();
    redis.set_delay(ms(1));
    let one = || Policy::new("held", Concurrency::new(1));
    let (holder, _) = process(&redis, one());
    let (limiter, _) = process(&redis, one());
    let permit = hold(&holder, 1).await;
    for waiters in [1, 50] {
        let before = redis.served().calls;
        let mut waiting = JoinSet::new();
        for _ in 0..waiters {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire("ann", ms(10_000)).await });
        }
        for permit in waiting.join_all().await {
            assert!(!permit.expect("a decision").is_allowed());
        }
        // One waiter polls for all, and each checks when it comes and before it leaves.
        let (calls, renewals) = (redis.served().calls - before, 2);
        let most = 17 + renewals + 2 * waiters;
        assert!(calls <= most, "{calls} calls of {waiters}");
    }
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_release_elsewhere_is_noticed_within_about_a_second() {
    let redis = SimulatedRedis::new();
    let one = || Policy::new("held", Concurrency::new(1));
    let (holder, _) = process(&redis, one());
    let (limiter, _) = process(&redis, one());
    for held_ms in [1, 90, 700, 3_210, 20_000] {
        let permit = hold(&holder, 1).await;
        let waiting = limiter.clone();
        let waits = tokio::spawn(async move { acquire(&waiting, "ann", ms(60_000)).await });
        sleep(ms(held_ms)).await;
        drop(permit);
        let released = Instant::now();
        let permit = waits.await.expect("no panic");
        assert!(permit.is_allowed());
        assert!(released.elapsed() <= ms(1_130), "{:?}", released.elapsed());
        drop(permit);
        sleep(ms(1)).await;
    }
}

/// As many waiters check as units come back, in the order in which they came.
#[tokio::test(start_paused = true)]
async fn the_first_waiter_gets_a_local_release_after_one_call() {
    let redis = SimulatedRedis::new();
    redis.set_delay(ms(5));
    let (limiter, _) = process(&redis, Policy::new("held", Concurrency::new(10)));
    let mut permits = hold(&limiter, 10).await;
    let (reported, mut order) = tokio::sync::mpsc::unbounded_channel();
    for place in 0..30 {
        let (limiter, reported) = (limiter.clone(), reported.clone());
        tokio::spawn(async move {
            let permit = acquire(&limiter, "ann", ms(600_000)).await;
            reported.send((place, permit)).expect("a reader");
        });
        sleep(ms(20)).await;
    }
    let mut next = 0;
    for released in [1, 4, 10, 2, 10, 3] {
        let released_at = Instant::now();
        let begin = permits.len() - released;
        drop(permits.split_off(begin));
        for _ in 0..released {
            let next_one = timeout(ms(600), order.recv()).await.expect("soon");
            let (place, permit) = next_one.expect("one");
            assert!(permit.is_allowed());
            assert_eq!(place, next);
            next += 1;
            permits.push(permit);
        }
        let took = released_at.elapsed();
        assert!(took <= ms(12), "{took:?}");
    }
}

/// A waiter that was called leaves before it checks: the next one gets the permit.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_passes_its_call_on() {
    let redis = SimulatedRedis::new();
    let (limiter, _) = process(&redis, Policy::new("held", Concurrency::new(1)));
    let permits = hold(&limiter, 1).await;
    let mut first = Box::pin(limiter.acquire("ann", ms(600_000)));
    assert!(timeout(ms(10_000), &mut first).await.is_err());
    let waiting = limiter.clone();
    let second = tokio::spawn(async move { acquire(&waiting, "ann", ms(600_000)).await });
    sleep(ms(10)).await;
    drop(permits);
    drop(first);
    let permit = timeout(ms(5), second).await.expect("at once");
    assert!(permit.expect("no panic").is_allowed());
}

#[tokio::test]
async fn the_next_renewal_restores_what_redis_lost() {
    let server = RedisServer::start();
    let policy = || Policy::new("held", Concurrency::new(10).lifetime(ms(1_000)));
    // By this clock, no permit expires.
    let clock = Arc::new(ManualClock::new());
    let [limiter, other] = [(); 2].map(|()| {
        let store = patient().clock(clock.clone()).connect(&server.url());
        Limiter::new(store.expect("a store"), policy())
    });
    let mut permits = hold(&limiter, 5).await;
    assert_eq!(taken(&other).await, 5);
    server.command(&["FLUSHALL"]);
    eventually_async("the count", || async { taken(&other).await == 5 }).await;
    // The next check restores the count, too.
    server.command(&["FLUSHALL"]);
    permits.extend(hold(&limiter, 1).await);
    assert_eq!(taken(&other).await, 6);
    drop(permits);
    eventually_async("all back", || async { taken(&other).await == 0 }).await;
}

/// What a denied check reads, and the commands that it runs, do not grow with the number of
/// permits.
#[tokio::test]
async fn a_denied_check_costs_the_same_for_any_number_of_permits() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let mut costs = Vec::new();
    for limit in [2, 1_000] {
        let policy = Policy::new("held", Concurrency::new(limit).lifetime(ms(3_600_000)));
        let limiter = Limiter::new(store.clone(), policy);
        let held = hold(&limiter, limit as usize).await;
        let bytes = server.command(&["STRLEN", &limiter.storage_keys("ann")[0]]);
        server.command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..10 {
            let denied = limiter.acquire("ann", Duration::ZERO).await;
            assert!(!denied.expect("a decision").is_allowed());
        }
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| line.split(',').next());
        let calls = calls.filter(|line| !line.contains("info") && !line.contains("config"));
        let calls: BTreeSet<String> = calls.map(str::to_owned).collect();
        costs.push((bytes, calls));
        drop(held);
        eventually_async("all back", || async { taken(&limiter).await == 0 }).await;
    }
    assert_eq!(costs[0], costs[1]);
}

/// Lists the permits as `docs/operating.md` describes it.
#[tokio::test]
async fn an_operator_can_list_the_holders_of_permits() {
    let page = include_str!("../../docs/operating.md");
    let script = page.split("redis-cli EVAL \"").nth(1).expect("the command");
    let script = script.split("\" 1 ").next().expect("its end");
    let server = RedisServer::start();
    let policy = || Policy::new("held", Concurrency::new(10).lifetime(LIFETIME));
    let mut held = Vec::new();
    for permits in [2, 3] {
        let store = patient();
        let limiter = Limiter::new(store.connect(&server.url()).expect("a store"), policy());
        held.push((hold(&limiter, permits).await, limiter));
    }
    let key = held[0].1.storage_keys("ann").remove(0);
    let listed = server.command(&["EVAL", script, "1", &key]);
    let counts = listed.lines().map(|line| line.split(' ').nth(2));
    let mut counts: Vec<_> = counts.collect();
    counts.sort_unstable();
    assert_eq!(counts, [Some("2"), Some("3")], "{listed}");
    assert_eq!(server.command(&["EVAL", script, "1", "no key"]), "");
}
