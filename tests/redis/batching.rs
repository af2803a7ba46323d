//! Checks that share calls: each is answered as if it had been sent alone.

use std::pin::Pin;

use proptest::prelude::*;

use crate::{prelude::*, support::oracle::Fields};

pub(crate) type Answered = Result<Decision, StoreError>;
pub(crate) type Asked = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// This many concurrent checks are sent alone.
const ALONE: usize = 4;

/// Polls each once, in this order. Afterwards all are in the queue, except for the first, which
/// are sent alone.
pub(crate) async fn enqueue(asked: &mut [Asked]) {
    for check in asked {
        let polled = std::future::poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "{polled:?}");
    }
}

async fn decisions(asked: Vec<Asked>) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for check in asked {
        decisions.push(check.await.expect("a decision"));
    }
    decisions
}

fn check(limiter: &Limiter, key: u64, units: u64) -> Asked {
    let limiter = limiter.clone();
    Box::pin(async move { limiter.check_n(key, units).await })
}

/// All fields of a decision.
fn shown(decision: &Decision) -> (Fields, Source) {
    (Fields::from(decision), decision.source())
}

fn store(server: &RedisServer, clock: Option<Arc<ManualClock>>) -> RedisStore {
    // Every check goes to Redis.
    let mut builder = patient().denial_cache_ttl(Duration::ZERO);
    if let Some(clock) = clock {
        builder = builder.clock(clock);
    }
    builder.connect(&server.url()).expect("a store")
}

/// An algorithm and its numbers.
#[derive(Clone, Debug)]
struct Kind(u8, u64, u64, u64);

impl Kind {
    fn policy(&self, name: usize) -> Policy {
        let &Self(kind, limit, period_us, room) = self;
        let period_ms = Duration::from_millis(1 + period_us / 1_000);
        let bucket = TokenBucket::new(limit, Duration::from_micros(period_us + limit)).burst(room);
        let name = format!("policy {name}");
        match kind {
            0 | 1 => Policy::new(name, bucket),
            2 => Policy::new(name, bucket.initial(room / 2)),
            3 => Policy::new(name, LeakyBucket::new(limit, period_ms).queue(room)),
            4 => Policy::new(name, LeakyBucket::new(limit, period_ms).capacity(room)),
            5 => Policy::new(name, FixedWindow::new(room, period_ms)),
            6 => Policy::new(name, FixedWindow::new(room, period_ms).aligned().spread()),
            7 => {
                let bucket = TokenBucket::new(limit, period_ms).burst(room);
                Policy::new(name, bucket.refill_at_once().initial(room / 2))
            }
            8 => Policy::new(name, SlidingWindow::new(room, period_ms)),
            _ => Policy::new(name, SlidingLog::new(room, period_ms)),
        }
        .max_debt(room)
    }
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let kind = (0_u8..10, 1_u64..20, 1_u64..3_000_000, 1_u64..40);
    let kind = kind.prop_map(|(kind, limit, period, room)| Kind(kind, limit, period, room));
    prop::collection::vec(kind, 1..4)
}

/// Concurrent operations.
#[derive(Clone, Debug)]
enum Step {
    /// How many checks are sent alone before; then limiter, key, cost, how often in a row, and
    /// whether a debt is allowed.
    Checks(usize, Vec<(usize, u64, u64, usize, bool)>),
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![4 => Just(1_u64), 1 => 0_u64..5];
    let asked = (
        0_usize..2,
        0_u64..2,
        cost,
        1_usize..12,
        prop::bool::weighted(0.1),
    );
    let step = prop_oneof![
        2 => (0..=ALONE, prop::collection::vec(asked, 1..5))
            .prop_map(|(ahead, asked)| Step::Checks(ahead, asked)),
        1 => (-500_000_i64..2_000_000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..12)
}

fn limiter(store: &Arc<dyn Store>, kinds: &[Kind]) -> Limiter {
    let policies = kinds.iter().enumerate();
    let policies = policies.map(|(place, kind)| kind.policy(place));
    denying_limiter(Arc::clone(store), policies)
}

/// Two limiters use the same buckets, as while a version with other numbers is deployed beside
/// this one.
async fn walk(server: &RedisServer, kinds: &[Kind], rooms: [u64; 2], steps: &[Step]) {
    server.command(&["FLUSHALL"]);
    let clock = Arc::new(ManualClock::new());
    let redis: Arc<dyn Store> = Arc::new(store(server, Some(clock.clone())));
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let memory: Arc<dyn Store> = Arc::new(memory);
    let of = |store: &Arc<dyn Store>| {
        rooms.map(|more| {
            let kinds = kinds.iter().cloned();
            let kinds = kinds.map(|kind| Kind(kind.0, kind.1 + more, kind.2, kind.3 + more));
            limiter(store, &kinds.collect::<Vec<_>>())
        })
    };
    let (tested, models) = (of(&redis), of(&memory));
    eventually_async("a connection", || async { tested[0].peek(0).await.is_ok() }).await;
    for step in steps {
        let (ahead, checks) = match step {
            Step::Pass(us) => {
                let now_us = clock.now_us();
                clock.set_us(now_us.saturating_add_signed(*us));
                continue;
            }
            Step::Checks(ahead, checks) => (*ahead, checks),
        };
        // A key of its own.
        let mut asked: Vec<Asked> = (0..ahead).map(|_| check(&tested[0], 9, 0)).collect();
        let mut expected = Vec::new();
        for &(which, key, cost, times, is_owed) in checks {
            for _ in 0..times {
                let (limiter, model) = (tested[which].clone(), &models[which]);
                asked.push(Box::pin(async move {
                    match is_owed {
                        true => limiter.debit(key, cost).await,
                        false => limiter.check_n(key, cost).await,
                    }
                }));
                let decision = match is_owed {
                    true => model.debit(key, cost).await,
                    false => model.check_n(key, cost).await,
                };
                expected.push(shown(&decision.expect("a decision")));
            }
        }
        enqueue(&mut asked).await;
        let decisions = decisions(asked).await;
        let reported: Vec<_> = decisions.iter().skip(ahead).map(shown).collect();
        assert_eq!(reported, expected, "{step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_check_of_a_batch_is_answered_as_if_sent_alone(
        kinds in kinds(),
        more in 0_u64..8,
        steps in steps(),
    ) {
        thread_local! {
            static SERVER: RedisServer = RedisServer::start();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        SERVER.with(|server| {
            runtime.expect("a runtime").block_on(walk(server, &kinds, [0, more], &steps));
        });
    }
}

#[tokio::test]
async fn many_equal_checks_are_one_entry() {
    let server = RedisServer::start();
    let own = Policy::new("own", TokenBucket::per_day(40));
    let day = Policy::new("day", FixedWindow::per_day(1_000));
    let limiter = denying_limiter(store(&server, None), [own, day]);
    ready(&limiter).await;
    let before = ["evalsha", "get", "psetex"].map(|command| server.ran(command));
    let mut asked: Vec<Asked> = (0..60).map(|_| check(&limiter, 1, 1)).collect();
    enqueue(&mut asked).await;
    let decisions = decisions(asked).await;
    let left = decisions.iter().map(|decision| {
        let left: Vec<_> = left_of(decision);
        (decision.is_allowed(), left)
    });
    let expected = (1..=60_u64).map(|number| {
        let taken = number.min(40);
        (number <= 40, vec![40 - taken, 1_000 - taken])
    });
    assert_eq!(left.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let after = ["evalsha", "get", "psetex"].map(|command| server.ran(command));
    // Some checks are sent alone. All others share one call of each lane, and one entry of two
    // policies.
    let [asked, read, written] = [0, 1, 2].map(|place| after[place] - before[place]);
    assert!((2..=5).contains(&asked), "{asked} calls");
    assert_eq!(read, 2 * asked);
    assert!(written <= 2 * asked, "{written} written in {asked} calls");
}

#[tokio::test]
async fn a_caller_that_left_before_its_check_was_sent_is_not_charged() {
    let server = RedisServer::start();
    let limiter = denying(store(&server, None), TokenBucket::per_day(100));
    ready(&limiter).await;
    let mut asked: Vec<Asked> = (0..60).map(|_| check(&limiter, 1, 1)).collect();
    enqueue(&mut asked).await;
    let mut number = 0;
    asked.retain(|_| {
        number += 1;
        number <= ALONE || number % 3 == 0
    });
    let in_the_end = 100 - asked.len() as u64;
    let decisions = decisions(asked).await;
    let left = decisions.iter().flat_map(Decision::policies);
    let left: Vec<_> = left.map(|policy| policy.remaining()).collect();
    assert_eq!(left, (in_the_end..100).rev().collect::<Vec<_>>());
    assert_eq!(super::left(&limiter, 1).await, in_the_end);
}

/// On racing threads, with batches of any size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_as_many_racing_checks_pass_as_there_is_room_for() {
    let server = RedisServer::start();
    let own = Policy::new("own", TokenBucket::per_day(500));
    let all = Policy::new("all", FixedWindow::per_day(1_300)).shared();
    let limiter = denying_limiter(store(&server, None), [own, all]);
    for round in 1..=3_u64 {
        let checks = (0..2_000_u64).map(|number| check(&limiter, round * 2 + number % 2, 1));
        let mut left = Vec::new();
        for decision in JoinSet::from_iter(checks).join_all().await {
            let decision = decision.expect("a decision");
            if decision.is_allowed() {
                left.extend(decision.policies().last().map(|policy| policy.remaining()));
            }
        }
        left.sort_unstable();
        // Two callers of 500 units each, until nothing is left in the shared bucket.
        let (before, after) = ((round - 1) * 1_000, (round * 1_000).min(1_300));
        let expected = (1_300 - after..1_300_u64.saturating_sub(before)).collect::<Vec<_>>();
        assert_eq!(left, expected, "round {round}");
    }
}

/// The reply of the script consists of several pieces.
#[tokio::test]
async fn each_of_very_many_policies_is_listed() {
    let server = RedisServer::start();
    let policies = (1..=2_000_u64).map(|limit| {
        let name = format!("of {limit}");
        Policy::new(name, SlidingWindow::new(limit, Duration::from_secs(3_600)))
    });
    let limiter = denying_limiter(store(&server, None), policies);
    let decision = limiter.check("ann").await.expect("a decision");
    assert_eq!(left_of(&decision), Vec::from_iter(0..2_000));
}

/// Three versions, deployed one after another, under a clock that steps back.
#[tokio::test]
async fn equal_denied_checks_see_the_state_that_the_first_wrote() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new());
    let redis: Arc<dyn Store> = Arc::new(store(&server, Some(clock.clone())));
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::builder().clock(clock.clone()).build());
    let bucket = |burst| {
        let bucket = TokenBucket::new(3, Duration::from_micros(1_000_001)).burst(burst);
        Policy::new("a", bucket).on_store_failure(OnStoreFailure::Deny)
    };
    let used_up = || Policy::new("b", TokenBucket::without_refill(1));
    let take = async |policy: Policy, units| {
        for store in [&redis, &memory] {
            let limiter = Limiter::new(Arc::clone(store), policy.clone());
            let _ = limiter.check_n(0, units).await.expect("a decision");
        }
    };
    take(used_up(), 1).await;
    take(bucket(30), 30).await;
    take(bucket(12), 1).await;
    clock.advance(Duration::from_secs(3));
    take(bucket(12), 1).await;
    clock.set_us(clock.now_us() - 1_000);
    let [tested, model] = [&redis, &memory].map(|store| {
        let builder = Limiter::builder().store(Arc::clone(store));
        let builder = builder.policy(bucket(2)).policy(used_up());
        builder.build().expect("a limiter")
    });
    let mut asked: Vec<Asked> = (0..ALONE).map(|_| check(&tested, 9, 0)).collect();
    asked.extend((0..5).map(|_| check(&tested, 0, 1)));
    enqueue(&mut asked).await;
    for decision in decisions(asked).await.iter().skip(ALONE) {
        let expected = model.check(0).await.expect("a decision");
        assert_eq!(shown(decision), shown(&expected));
    }
}
