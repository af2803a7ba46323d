//! Defects that these tests found, and that are fixed.

use super::fake_store::{Does, Switch, finish, limiter, soon, unavailable};
use crate::support::prelude::*;

fn share(quota: impl TryInto<Quota, Error: std::fmt::Debug>, processes: u32) -> Policy {
    let quota: Quota = quota.try_into().unwrap();
    let choice = OnStoreFailure::share_of(processes);
    Policy::new("shared", quota).on_store_failure(choice)
}

/// The request was admitted without taking anything, and then delayed until the excess had
/// flowed in: for three minutes here, though the caller did not want to wait.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_is_denied_at_once() {
    let clock = TokioClock::new();
    let policy = || share(TokenBucket::per_minute(100), 4);
    let limiter = limiter(Switch::down(&clock), [policy()]);
    let started = tokio::time::Instant::now();
    for wait in [Duration::ZERO, ms(1_000)] {
        let refused = limiter.acquire_n("ann", 26, wait).await;
        assert!(refused.unwrap_err().is_unavailable());
    }
    let layer = RateLimitLayer::builder()
        .store(Switch::down(&clock))
        .policy(policy().shared().cost(100))
        .policy(Policy::new("held", Concurrency::new(10)).shared())
        .build()
        .unwrap();
    let service = layer.layer(tower::service_fn(hello));
    let response = service.oneshot(plain()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// The debt in each process is bounded by its share of the units.
#[test]
fn the_debt_that_debit_allows_is_shared() {
    let clock = Arc::new(ManualClock::new());
    let owed = |quota: Quota| {
        let policy = || share(quota, 10).max_debt(100);
        let processes = (0..10).map(|_| limiter(Switch::down(&clock), [policy()]));
        let debits = processes.map(|process| {
            let debits = (0..1_000).map(|_| finish(process.debit("ann", 1)).unwrap());
            debits.map(|decision| decision.charged()).sum::<u64>()
        });
        debits.sum::<u64>()
    };
    let bucket = TokenBucket::per_minute(100).try_into().unwrap();
    let window = FixedWindow::per_minute(100).try_into().unwrap();
    // The quota, the debt, and less than one unit more for each process.
    assert!(owed(bucket) <= 209, "a bucket");
    assert!(owed(window) <= 209, "a window: {}", owed(window));
}

/// A probe that is not polled, as in a stream that is buffered behind slow work, kept its
/// place. So no further check reached the store, though the probe's deadline had passed long
/// before.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_never_polled_does_not_keep_the_breaker_open() {
    let store = Switch::on(&Arc::new(ManualClock::new()));
    let guarded = Guarded::new(store.clone()).timeout(ms(5));
    let limiter = limiter(
        guarded,
        [Policy::new("one", TokenBucket::per_second(1_000_000))],
    );
    store.now(unavailable());
    for _ in 0..5 {
        drop(limiter.check("ann").await);
    }
    store.now(Does::AnswersLater(1));
    let mut forgotten = Vec::new();
    soon(ms(70), async || {
        let mut check = Box::pin(limiter.check("ann"));
        let polled = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let is_probe = polled.is_pending();
        if is_probe {
            forgotten.push(check);
        }
        is_probe
    })
    .await;
    // The store has recovered, and must decide again.
    let is_back = async || limiter.check("ann").await.unwrap().source() == Source::Store;
    soon(ms(1_100), is_back).await;
}

/// A release or renewal in this process counted as an answer of the store.
#[cfg(feature = "tracing")]
#[test]
fn a_local_permit_does_not_end_the_outage() {
    let logging = super::log_capture::Logging::new();
    logging.runtime.block_on(async {
        let store = Switch::down(&Arc::new(ManualClock::new()));
        let held = Policy::new("held", Concurrency::new(10));
        let limiter = Limiter::new(store, held);
        let permit = limiter.acquire("ann", Duration::ZERO).await.unwrap();
        // For longer than a recovery takes there are no checks, then the work is done.
        tokio::time::sleep(ms(60_000)).await;
        drop(permit);
        let log = logging.lines();
        assert_eq!(log.len(), 1, "the store was down all the time: {log:#?}");
    });
}

/// A permit that was released while the guard was open did not come back when it closed: an
/// immediate error counted as the end of the release. The permit stayed for its lifetime.
#[tokio::test(start_paused = true)]
async fn a_permit_released_while_the_breaker_is_open_returns_when_it_closes() {
    let lifetime = Duration::from_secs(3_600);
    let held = || Policy::new("held", Concurrency::new(10).lifetime(lifetime));
    let store = Switch::on(&TokioClock::new());
    let limiter = limiter(store.clone(), [held()]);
    let permit = limiter.acquire("ann", Duration::ZERO).await.unwrap();
    store.now(unavailable());
    drop(permit);
    tokio::time::sleep(ms(1_000)).await;
    store.now(Does::Answers);
    // No check ends the pause with a reply: it lasts for a tenth of the lifetime at most.
    tokio::time::sleep(lifetime / 5).await;
    let standing = store.looking([held()]).peek("ann").await.unwrap();
    assert_eq!(standing.policies().next().unwrap().remaining(), 10);
}

/// The last of five lost replies opens the guard, and its permit did not come back either.
#[tokio::test(start_paused = true)]
async fn lost_permits_return_though_they_open_the_breaker() {
    let lifetime = Duration::from_secs(3_600);
    let held = || Policy::new("held", Concurrency::new(10).lifetime(lifetime));
    let store = Switch::on(&TokioClock::new());
    let guarded = Guarded::new(store.clone()).timeout(ms(50));
    let limiter = limiter(guarded, [held()]);
    store.now(Does::AnswersAfter(ms(60)));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("ann", Duration::ZERO).await })
        })
        .collect();
    for task in tasks {
        let permit = task.await.unwrap().unwrap();
        assert_eq!(permit.decision().source(), Source::Local);
    }
    store.now(Does::Answers);
    tokio::time::sleep(lifetime / 5).await;
    let standing = store.looking([held()]).peek("ann").await.unwrap();
    assert_eq!(standing.policies().next().unwrap().remaining(), 10);
}

/// With no policy left to limit, as many units as the cost may be used.
#[test]
fn a_policy_that_is_left_out_grants_the_cost() {
    let clock = Arc::new(ManualClock::new());
    let policy = Policy::new("one", TokenBucket::per_minute(100));
    let policy = policy.on_store_failure(OnStoreFailure::Allow);
    let limiter = limiter(Switch::down(&clock), [policy]);
    let decision = finish(limiter.take_up_to("ann", 10)).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.charged(), 10, "allowed, and not one unit");
}
