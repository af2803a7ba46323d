//! What a control document does in a limiter, compared with limits that are built in code.

use std::{
    thread,
    time::{Instant, UNIX_EPOCH},
};

use tower_throttle::{
    LimiterBuilder,
    control::{Control, Mode},
};

use crate::support::overlaid::{Asked, KEYS, POLICIES, Told, quota, seen};
use crate::support::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn quota_of(quota: impl TryInto<Quota, Error: std::fmt::Debug>) -> Quota {
    quota.try_into().expect("a quota")
}

/// Returns a limiter in memory and its document, with the store and its clock.
fn controlled(
    policies: impl IntoIterator<Item = Policy>,
    set: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
) -> (Limiter, Control, MemoryStore, Arc<ManualClock>) {
    let (store, clock) = manual_store();
    let control = store.control();
    let builder = Limiter::builder().store(store.clone());
    let builder = policies.into_iter().fold(builder, LimiterBuilder::policy);
    let limiter = set(builder.control(control.clone())).build();
    (limiter.expect("valid"), control, store, clock)
}

/// A limiter of one policy, `plan`, that admits `limit` units an hour, and its document.
fn limiter(limit: u64) -> (Limiter, Control) {
    let plan = Policy::new("plan", FixedWindow::per_hour(limit));
    let (limiter, control, ..) = controlled([plan], |builder| builder);
    (limiter, control)
}

/// Returns the limit of the caller's quota in the first policy.
fn limit(limiter: &Limiter, key: &str) -> u64 {
    let decision = at_once(peek(limiter, key));
    let policy = decision.policies().next().expect("a policy");
    policy.quota().limit()
}

fn denied_by(decision: &Decision) -> Vec<&str> {
    decision.denied_by().map(|policy| policy.name()).collect()
}

/// When a simulated Redis starts.
const START_US: u64 = 1_767_225_600_000_000;

/// In memory, and on Redis, where no cached denial may apply to a caller with other numbers.
#[tokio::test(start_paused = true)]
async fn random_documents_decide_like_limits_in_code() {
    // One part, so that drained buckets of both stores are forgotten at one time.
    let in_memory = |clock: Arc<ManualClock>, _: bool| {
        let store = MemoryStore::builder().capacity(64).clock(clock).build();
        let control = store.control();
        (store, control)
    };
    assert_like_in_code(in_memory, 0).await;
    #[cfg(feature = "testing")]
    {
        let on_redis = |clock: Arc<ManualClock>, caches: bool| {
            let redis = tower_throttle::testing::SimulatedRedis::new();
            let ttl = if caches { ms(1_000) } else { Duration::ZERO };
            let builder = hasty().clock(clock).denial_cache_ttl(ttl);
            let store = builder.simulated(&redis).expect("a store");
            let control = store.control();
            (store, control)
        };
        assert_like_in_code(on_redis, 10).await;
    }
}

/// At least so many of the decisions are denials that the store has cached. Limits in code have another
/// store of the same kind, which caches none: each kind forgets what its last numbers have refilled.
async fn assert_like_in_code<S: Store + Clone>(
    new_store: impl Fn(Arc<ManualClock>, bool) -> (S, Control),
    least_cached: u64,
) {
    let mut random = Random::new();
    let mut cached = 0;
    for _ in 0..60 {
        let clock = Arc::new(ManualClock::at_us(START_US));
        let (store, control) = new_store(clock.clone(), true);
        let began = tokio::time::Instant::now();
        let (other, _) = new_store(clock.clone(), false);
        let base = [quota(&mut random), quota(&mut random)];
        let mut builder = Limiter::builder().store(store).control(control.clone());
        for (name, quota) in POLICIES.iter().zip(base) {
            builder = builder.policy(Policy::new(*name, quota));
        }
        let limiter = builder.build().expect("valid");
        let mut told = Told::default();
        for _ in 0..80 {
            let now = UNIX_EPOCH + Duration::from_micros(clock.now_us());
            if random.percent(15) {
                told.change(&control, &mut random, now).await;
            }
            tokio::time::sleep(ms(random.below(900))).await;
            clock.set_us(START_US + began.elapsed().as_micros() as u64);
            let now = UNIX_EPOCH + Duration::from_micros(clock.now_us());

            let (key, asked) = (random.below(3) as usize, Asked::any(&mut random));
            let decision = asked.of(&limiter, KEYS[key]).await.expect("in memory");
            let bans = told.bans(key, now);
            if asked.is_denied_by_bans() && !bans.is_empty() {
                let decision = decision.expect("it decides");
                assert_eq!(decision.verdict(), Verdict::Denied);
                assert_eq!(decision.source(), Source::List);
                let denied = decision.denied_by();
                let denied = denied.map(|policy| (policy.name(), policy.retry_after()));
                let denied: Vec<_> = denied.collect();
                assert_eq!(denied.len(), bans.len());
                for ((name, left), (denied_by, retry_after)) in bans.iter().zip(denied) {
                    assert_eq!(*name, denied_by);
                    let retry_after = retry_after.expect("it ends");
                    // Documents have whole milliseconds.
                    assert!(retry_after.abs_diff(*left) <= ms(1));
                }
                continue;
            }
            let in_code = Limiter::builder().store(other.clone());
            let Some(in_code) = told.in_code(&base, key, in_code) else {
                assert!(decision.is_none_or(|decision| decision.is_allowed()));
                continue;
            };
            let expected = asked.of(&in_code, KEYS[key]).await.expect("in memory");
            // In paused time, this lets the answers for shadow policies arrive.
            tokio::time::sleep(ms(1)).await;
            let is_cached = |decision: &Decision| decision.source() == Source::Cache;
            cached += u64::from(decision.as_ref().is_some_and(is_cached));
            let [found, expected] = [&decision, &expected].map(|it| it.as_ref().map(seen));
            assert_eq!(found, expected, "{asked:?} {told:?} {base:?}");
        }
    }
    assert!(cached >= least_cached, "{cached} denials");
}

#[tokio::test]
async fn a_limiter_whose_policies_are_all_off_admits_and_charges_nothing() {
    let tokens = Policy::new("tokens", TokenBucket::per_hour(5)).hold_for(HOUR);
    let bans = Policy::new("bans", Penalty::after(1));
    let (limiter, control, store, _) = controlled([tokens, bans], |builder| builder);
    for policy in ["tokens", "bans"] {
        control.set_mode(policy, Mode::Off).await.expect("a mode");
    }
    let refund = limiter.credit("ann", 9).await.expect("no store");
    assert_eq!(refund.refunded(), 0);
    for (decision, charged) in [
        (limiter.check("ann").await, 1),
        (limiter.check_n("ann", 9).await, 9),
        (limiter.take_up_to("ann", 9).await, 9),
        (limiter.debit("ann", 9).await, 9),
        (limiter.peek("ann").await, 1),
        (limiter.strike("ann", 9).await, 0),
    ] {
        let decision = decision.expect("no store");
        assert_eq!((decision.is_allowed(), decision.charged()), (true, charged));
    }
    limiter.ban("ann", HOUR).await.expect("no store");
    let reserved = limiter.reserve("ann", 9).await.expect("no store");
    assert!(reserved.is_allowed());
    limiter.reset("ann").await.expect("no store");
    assert!(store.is_empty());
    assert_eq!(limiter.metrics().requests.not_limited, 4);
}

#[tokio::test]
async fn an_entry_that_cannot_be_taken_is_left_out_and_reported() {
    let plan = Policy::new("plan", FixedWindow::per_hour(1));
    let jobs = Policy::new("jobs", Concurrency::new(1));
    let (limiter, control, ..) = controlled([plan, jobs], |builder| builder.name("workers"));
    let reports = |policy: &str, what: &str| {
        let problem = control.status().problem.expect("it is reported");
        let expected = format!("limiter workers: policy \"{policy}\": {what}");
        assert!(problem.contains(&expected), "{problem}");
    };
    let shadow = control.set_mode("jobs", Mode::Shadow);
    shadow.await.expect("a mode");
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_hour(2)));
    raised.await.expect("an override");
    reports("jobs", "a shadow policy cannot have a Concurrency quota");
    // The rest applies, and the policy is as code says.
    let ask = async || limiter.acquire("ann", ms(0)).await.expect("in memory");
    let (first, second) = (ask().await, ask().await);
    assert!(first.is_allowed());
    assert_eq!(denied_by(second.decision()), ["jobs"]);
    drop(first);
    assert!(ask().await.is_allowed());

    control.clear_mode("jobs").await.expect("a mode");
    assert_eq!(control.status().problem, None);
    for (policy, quota) in [
        ("plan", quota_of(Concurrency::new(5))),
        ("plan", quota_of(Penalty::after(5))),
        ("jobs", quota_of(FixedWindow::per_hour(5))),
    ] {
        let change = control.override_quota(policy, "bob", quota);
        change.await.expect("an override");
        reports(
            policy,
            "a caller's quota cannot replace that of the policy: a ",
        );
        assert_eq!(limit(&limiter, "bob"), 1);
        let was_there = control.clear_override(policy, "bob").await;
        assert!(was_there.expect("in memory"));
    }
}

/// Threads take while the document changes: no unit is granted twice, and none is lost.
#[test]
fn counts_are_exact_while_documents_are_swapped() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (limiter, control) = limiter(20_000);
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let decision = limiter.check_now("ann").expect("in memory");
                    let policy = decision.policies().next().expect("a policy");
                    assert!([20_000, 30_000].contains(&policy.quota().limit()));
                    taken.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
        runtime.block_on(async {
            let quota = quota_of(FixedWindow::per_hour(30_000));
            let raise = async || {
                let raised = control.override_quota("plan", "ann", quota);
                raised.await.expect("an override");
            };
            for _ in 0..500 {
                raise().await;
                let cleared = control.clear_override("plan", "ann").await;
                cleared.expect("no override");
            }
            raise().await;
        });
        let ends = Instant::now() + Duration::from_secs(60);
        while taken.load(Ordering::Relaxed) < 30_000 && Instant::now() < ends {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(taken.load(Ordering::Relaxed), 30_000);
    assert_eq!(limiter.metrics().requests.allowed, 30_000);
}

/// A caller that the status counts as banned is denied.
#[test]
fn a_status_is_never_ahead_of_what_is_in_effect() {
    const BANS: u64 = 100;

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (limiter, control) = limiter(20_000);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                // Callers are banned one after the other.
                let mut banned = 0;
                while banned < BANS as usize {
                    banned = control.status().entries;
                    if let Some(last) = (banned as u64).checked_sub(1) {
                        let decision = limiter.check_now(last).expect("in memory");
                        assert!(!decision.is_allowed(), "{last}");
                    }
                }
            });
        }
        runtime.block_on(async {
            for caller in 0..BANS {
                control.ban("plan", caller, HOUR).await.expect("a ban");
            }
        });
    });
}
