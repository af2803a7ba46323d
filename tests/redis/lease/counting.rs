//! No unit is created, and Redis is hardly ever called.

use tokio::sync::Barrier;
#[cfg(feature = "testing")]
use tokio::time::{Instant, sleep_until};
#[cfg(feature = "testing")]
use tower_throttle::testing::SimulatedRedis;

use super::*;

const TASKS: usize = 64;
const UNITS: u64 = 30_000;

async fn race(stores: &[RedisStore; 2]) {
    let start = Arc::new(Barrier::new(TASKS));
    let tasks = (0..TASKS).map(|task| {
        let (limiter, start) = (of(&stores[task % 2], UNITS), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            exhaust(&limiter).await
        })
    });
    let mut asked = Asked::default();
    for task in tasks.collect::<Vec<_>>() {
        asked.add(task.await.expect("no panic"));
    }
    assert!(asked.admitted <= UNITS, "{asked:?}");
    assert!(asked.from_leases > UNITS / 10, "{asked:?}");
    // Units that one process still held when the other was denied come back.
    let limiter = of(&stores[0], UNITS);
    all_is_back(&limiter, UNITS - asked.admitted).await;
    asked.add(exhaust(&limiter).await);
    assert_eq!(asked.admitted, UNITS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_tasks_over_two_stores_are_admitted_exactly_what_the_bucket_holds() {
    let server = RedisServer::start();
    race(&[uncached(&server.url()), uncached(&server.url())]).await;
    server.assert_all_keys_expire();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_racing_tasks_are_admitted_exactly_what_the_bucket_holds() {
    let cluster = RedisCluster::start(3, 0);
    race(&[uncached(&cluster.url()), uncached(&cluster.url())]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_create_no_units() {
    let server = RedisServer::start();
    let store = uncached(&server.url());
    let limiter = of(&store, UNITS);
    let (mut asked, mut left_early) = (Asked::default(), 0);
    for _ in 0..200 {
        let tasks = (0..50).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("ann").await })
        });
        for (number, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
            if number % 3 == 0 {
                task.abort();
            }
            match task.await {
                Ok(answer) => {
                    asked.count(&answer, 1);
                }
                Err(_) => left_early += 1,
            }
        }
    }
    assert!(left_early > 0 && asked.from_leases > 0, "{asked:?}");
    // They may be charged or not, as without leases.
    let may_be_left = UNITS - asked.admitted - left_early..=UNITS - asked.admitted;
    let is_back = || async { may_be_left.contains(&left(&limiter).await) };
    eventually_async("units that were not used", is_back).await;
    asked.add(exhaust(&limiter).await);
    let may_be = UNITS - left_early..=UNITS;
    assert!(may_be.contains(&asked.admitted), "{asked:?}");
}

/// In paused time, because it depends on how often the key is asked for.
#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn a_hot_key_far_from_its_limit_costs_hardly_a_call() {
    let ms = Duration::from_millis(1);
    for per_ms in [10, 100] {
        let redis = SimulatedRedis::new();
        let store = RedisStore::builder().simulated(&redis).expect("a store");
        let bucket = TokenBucket::per_second(1_000_000).burst(1_000_000_000);
        let limiter = Limiter::new(store, leased(bucket));
        // The first leases are small.
        for second in 0..3 {
            let (began, before) = (Instant::now(), redis.served().calls);
            let mut asked = Asked::default();
            for tick in 1..=1_000 {
                for _ in 0..per_ms {
                    assert!(asked.count(&limiter.check("ann").await, 1));
                }
                sleep_until(began + tick * ms).await;
            }
            let calls = redis.served().calls - before;
            println!("{calls} calls in second {second}: {asked:?}");
            assert!(second == 0 || calls <= 30, "{calls} calls for {asked:?}");
            assert!(asked.from_leases > asked.admitted / 10 * 9, "{asked:?}");
        }
    }
}

#[tokio::test]
async fn leases_apply_only_to_single_policy_checks() {
    let server = RedisServer::start();
    let store = uncached(&server.url());
    let limiter = of(&store, UNITS);
    warm(&limiter).await;
    let hot = leased(TokenBucket::without_refill(UNITS));
    let other = Policy::new("other", TokenBucket::per_hour(1_000));
    let both = denying_limiter(store.clone(), [hot, other]);
    let refund = limiter.credit("ann", 1).await;
    let permit = limiter.acquire("ann", DEADLINE).await;
    for decision in [
        limiter.check_n("ann", 0).await,
        limiter.take_up_to("ann", 3).await,
        limiter.peek("ann").await,
        refund.map(|refund| refund.decision().clone()),
        permit.map(|permit| permit.decision().clone()),
        both.check("ann").await,
    ] {
        assert_eq!(decision.expect("a decision").source(), Source::Store);
    }
    // A debit charges what is left, and never leased units.
    let debit = limiter.debit("ann", UNITS).await.expect("a decision");
    assert_eq!(debit.source(), Source::Store);
    assert!(debit.uncharged() > 0);
}

#[tokio::test]
async fn a_store_that_answers_at_once_ignores_leases() {
    let bucket = TokenBucket::without_refill(1_000);
    let limiter = Limiter::new(MemoryStore::new(), leased(bucket));
    let asked = exhaust(&limiter).await;
    assert_eq!((asked.admitted, asked.from_leases), (1_000, 0));
}
