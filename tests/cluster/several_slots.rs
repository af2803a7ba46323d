//! A check whose policies lie in several slots.

use tokio::sync::Barrier;

use crate::prelude::*;

/// Three policies of one caller around two for all callers, each with another algorithm.
fn mixed() -> [Policy; 5] {
    [
        Policy::new("bucket", TokenBucket::per_day(8)),
        Policy::new("all-window", FixedWindow::per_day(20)).shared(),
        Policy::new("log", SlidingLog::per_day(9)),
        Policy::new("all-leaky", LeakyBucket::per_day(30).capacity(30)).shared(),
        Policy::new("sliding", SlidingWindow::per_day(7)),
    ]
}

#[tokio::test]
async fn several_slots_decide_as_one_check_does() {
    let cluster = RedisCluster::start(3, 0);
    let here = denying_limiter(MemoryStore::new(), mixed());
    let there = denying_limiter(store_at(&cluster.url()), mixed());
    let mut verdicts = Vec::new();
    for round in 0..60_u64 {
        let (caller, units) = (format!("caller-{}", round % 4), round * 7 % 12);
        let [mine, theirs] = [&here, &there].map(|limiter| {
            let caller = caller.clone();
            async move {
                match round % 6 {
                    0 | 1 => limiter.check(caller).await,
                    2 => limiter.check_n(caller, units).await,
                    3 => limiter.take_up_to(caller, units).await,
                    4 => {
                        let refund = limiter.credit(caller, units / 4).await;
                        refund.map(|refund| refund.decision().clone())
                    }
                    _ => limiter.peek(caller).await,
                }
            }
        });
        let (mine, theirs) = (mine.await.expect("mine"), theirs.await.expect("theirs"));
        assert_eq!(theirs.verdict(), mine.verdict(), "round {round}");
        assert_eq!(facts(&theirs), facts(&mine), "round {round}, {units} units");
        assert_eq!(theirs.charged(), mine.charged(), "round {round}");
        verdicts.push(theirs.verdict());
    }
    for verdict in [Verdict::Allowed, Verdict::Denied, Verdict::Impossible] {
        assert!(verdicts.contains(&verdict), "{verdict:?} was tried");
    }
    for caller in 0..4 {
        let caller = format!("caller-{caller}");
        assert_eq!(taken(&there, &caller).await, taken(&here, &caller).await);
    }
    there.reset("caller-1").await.expect("forgotten");
    let left = taken(&there, "caller-1").await;
    assert_eq!([left[0], left[2], left[4]], [0, 0, 0]);
    there.reset_shared().await.expect("forgotten");
    let left = taken(&there, "caller-1").await;
    assert_eq!(left, [0; 5]);
}

/// Returns how many checks of 64 racing callers are admitted.
async fn race(store: RedisStore, policies: Vec<Policy>, checks: usize) -> u64 {
    let limiter = denying_limiter(store, policies);
    let start = Arc::new(Barrier::new(64));
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let (limiter, start) = (limiter.clone(), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            count_admitted(&limiter, &format!("caller-{task}"), checks).await as u64
        });
    }
    tasks.join_all().await.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_tasks_never_pass_a_shared_quota_and_are_charged_what_they_passed() {
    let cluster = RedisCluster::start(3, 0);
    let store = store_at(&cluster.url());
    let all: [fn(&str) -> Policy; 5] = [
        |name| Policy::new(name, TokenBucket::per_day(100)).shared(),
        |name| Policy::new(name, FixedWindow::per_day(100)).shared(),
        |name| Policy::new(name, SlidingWindow::per_day(100)).shared(),
        |name| Policy::new(name, SlidingLog::per_day(100)).shared(),
        |name| Policy::new(name, LeakyBucket::per_day(100).capacity(100)).shared(),
    ];
    for (number, all) in all.into_iter().enumerate() {
        for is_shared_first in [true, false] {
            let name = format!("all-{number}-{is_shared_first}");
            let own_name = format!("own-{number}-{is_shared_first}");
            let own = Policy::new(&own_name, FixedWindow::per_day(3));
            let mut policies = vec![all(&name), own.clone()];
            if !is_shared_first {
                policies.reverse();
            }
            let admitted = race(store.clone(), policies, 6).await;
            // Units that were refunded a moment later may have denied a check.
            assert!(admitted <= 100, "{name}: {admitted}");
            assert!(admitted >= 64, "{name}: {admitted}");
            let shared = Limiter::new(store.clone(), crate::denying(all(&name)));
            assert_eq!(taken(&shared, "").await, [admitted], "{name}");
            let own = Limiter::new(store.clone(), crate::denying(own));
            let mut sum = 0;
            for task in 0..64 {
                sum += taken(&own, &format!("caller-{task}")).await[0];
            }
            assert_eq!(sum, admitted, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_midway_is_charged_in_all_slots_or_none() {
    let cluster = RedisCluster::start(3, 0);
    let policies = [
        Policy::new("own", TokenBucket::without_refill(100_000)),
        Policy::new("all", FixedWindow::per_day(100_000)).shared(),
        Policy::new("also-own", FixedWindow::per_day(100_000)),
    ];
    let limiter = denying_limiter(store_at(&cluster.url()), policies);
    let _ = limiter.check("ann").await.expect("a decision");
    for round in 0..400_u64 {
        let check = limiter.check("ann");
        let _ = tokio::time::timeout(Duration::from_micros(round * 3), check).await;
    }
    eventually_async("the same count everywhere", || async {
        let taken = taken(&limiter, "ann").await;
        taken.iter().all(|units| *units == taken[0])
    })
    .await;
    assert!(taken(&limiter, "ann").await[0] <= 401);
}

#[tokio::test]
async fn permits_of_all_slots_are_held_and_come_back() {
    let cluster = RedisCluster::start(3, 0);
    let own = Policy::new("own", Concurrency::new(2));
    let all = Policy::new("all", Concurrency::new(3)).shared();
    let limiter = denying_limiter(store_at(&cluster.url()), [own, all]);
    let hold = |caller: &'static str| acquire(&limiter, caller, Duration::ZERO);
    let held = [hold("ann").await, hold("ann").await, hold("bob").await];
    assert!(held.iter().all(Permit::is_allowed));
    let denied = hold("ann").await;
    let names = denied.decision().denied_by().map(|policy| policy.name());
    assert_eq!(names.collect::<Vec<_>>(), ["own", "all"]);
    assert!(!hold("bob").await.is_allowed());
    assert_eq!(taken(&limiter, "ann").await, [2, 3]);
    assert_eq!(taken(&limiter, "bob").await, [1, 3]);
    drop(held);
    let are_back = async || taken(&limiter, "ann").await == [0, 0];
    eventually_async("all permits back", are_back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_later_slot_refunds_the_first() {
    let cluster = RedisCluster::start(3, 0);
    let store = hasty().timeout(Duration::from_millis(300));
    let store = store.connect(&cluster.url()).expect("a store");
    let policies = [
        Policy::new("own", TokenBucket::per_day(100)),
        Policy::new("all", FixedWindow::per_day(100)).shared(),
        Policy::new("own-log", SlidingLog::per_day(100)),
    ];
    let stores = [store, store_at(&cluster.url())];
    let [hasty, limiter] = stores.map(|store| denying_limiter(store, policies.clone()));
    let (caller, shared) = cluster.caller_apart(&limiter, 0, 1);
    let caller = &*caller;
    eventually_async("a decision", || async { hasty.check(caller).await.is_ok() }).await;
    let before = taken(&limiter, caller).await;

    let frozen = Frozen::new(&cluster.nodes[shared]);
    for _ in 0..5 {
        let error = hasty.check(caller).await.expect_err("half a check");
        assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
    }
    drop(frozen);
    eventually_async("an answer", || async { limiter.peek(caller).await.is_ok() }).await;
    eventually_async("units back", || async {
        let now = taken(&limiter, caller).await;
        [now[0], now[2]] == [before[0], before[2]]
    })
    .await;
    // A check that reached the frozen node may have run when the node continued.
    let now = taken(&limiter, caller).await[1];
    assert!((before[1]..=before[1] + 5).contains(&now), "{now}");
}

/// Returns a store that answers a check when it has reset its buckets.
fn forgetting(store: RedisStore) -> impl Store {
    wrapped(store, |store, check| {
        let reset = store.reset(check.charges());
        Answer::Later(Box::pin(async move {
            if let Answer::Later(reset) = reset {
                reset.await?;
            }
            Err(StoreError::unavailable("all were reset"))
        }))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_reports_a_silent_slot_and_resets_the_others() {
    let cluster = RedisCluster::start(3, 0);
    let store = hasty().timeout(Duration::from_secs(2));
    let store = store.connect(&cluster.url()).expect("a store");
    let policies = || {
        [
            Policy::new("all", FixedWindow::per_day(100)).shared(),
            Policy::new("own", TokenBucket::per_day(100)),
            Policy::new("own-log", SlidingLog::per_day(100)),
        ]
    };
    let forgets = denying_limiter(forgetting(store.clone()), policies());
    let limiter = denying_limiter(store, policies());
    let (caller, shared) = cluster.caller_apart(&limiter, 1, 0);
    let caller = &*caller;
    eventually_async("a decision", async || limiter.check(caller).await.is_ok()).await;

    let frozen = Frozen::new(&cluster.nodes[shared]);
    let error = forgets.check(caller).await.expect_err("half a reset");
    assert!(error.is_timeout(), "{error:?}");
    drop(frozen);
    eventually_async("an answer", || async { limiter.peek(caller).await.is_ok() }).await;
    assert_eq!(taken(&limiter, caller).await[1..], [0, 0]);

    let _ = limiter.check(caller).await.expect("a decision");
    let error = forgets.check(caller).await.expect_err("no decision");
    assert!(format!("{error:?}").contains("all were reset"), "{error:?}");
    assert_eq!(taken(&limiter, caller).await, [0, 0, 0]);
}
