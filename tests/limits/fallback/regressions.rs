//! Defects that these tests found, and that are fixed.

use tokio::time::sleep;

use super::{
    fake_store::{Does, Switch, finish, soon, unavailable},
    quotas::shared,
};
use crate::support::prelude::*;

/// The debt in each process is bounded by its share of the units.
#[test]
fn the_debt_that_debit_allows_is_shared() {
    let clock = Arc::new(ManualClock::new());
    let quotas: [Quota; 2] = [
        TokenBucket::per_minute(100).try_into().unwrap(),
        FixedWindow::per_minute(100).try_into().unwrap(),
    ];
    for quota in quotas {
        let owed = (0..10).map(|_| {
            let process = Limiter::new(Switch::down(&clock), shared(quota, 10).max_debt(100));
            let debits = (0..1_000).map(|_| finish(process.debit("ann", 1)).unwrap());
            debits.map(|decision| decision.charged()).sum::<u64>()
        });
        let owed: u64 = owed.sum();
        // The quota, the debt, and less than one unit more for each process.
        assert!(owed <= 209, "{owed}: {quota:?}");
    }
}

/// A probe that is not polled, as in a stream that is buffered behind slow work, kept its
/// place. So no further check reached the store, though the probe's deadline had passed long
/// before.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_never_polled_does_not_keep_the_breaker_open() {
    let store = Switch::on(&Arc::new(ManualClock::new()));
    let guarded = Guarded::new(store.clone()).timeout(ms(5));
    let limiter = Limiter::new(guarded, TokenBucket::per_second(1_000_000));
    store.now(unavailable());
    for _ in 0..5 {
        drop(limiter.check("ann").await);
    }
    store.now(Does::AnswersLater(1));
    let mut forgotten = Vec::new();
    soon(ms(70), async || {
        let mut check = Box::pin(limiter.check("ann"));
        let is_probe = poll(&mut check).is_pending();
        forgotten.push(check);
        is_probe
    })
    .await;
    // The store has recovered, and must decide again.
    let is_back = async || check(&limiter, "ann").await.source() == Source::Store;
    soon(ms(1_100), is_back).await;
}

/// A permit that was released while the guard was open did not come back when it closed: an
/// immediate error counted as the end of the release. And the last of five lost replies opens the
/// guard, and its permit did not come back either. Both stayed for their lifetimes.
#[tokio::test(start_paused = true)]
async fn permits_that_end_while_the_breaker_is_open_return_when_it_closes() {
    let lifetime = Duration::from_secs(3_600);
    let held = || Policy::new("held", Concurrency::new(10).lifetime(lifetime));
    for is_lost in [false, true] {
        let store = Switch::on(&TokioClock::new());
        let guarded = Guarded::new(store.clone()).timeout(ms(50));
        let limiter = Limiter::new(guarded, held());
        if is_lost {
            store.now(Does::AnswersAfter(ms(60)));
            let tasks = (0..8).map(|_| come(&limiter, ms(0)));
            for permit in JoinSet::from_iter(tasks).join_all().await {
                let permit = permit.unwrap();
                assert_eq!(permit.decision().source(), Source::Local);
            }
        } else {
            let permit = acquire(&limiter, "ann", ms(0)).await;
            store.now(unavailable());
            drop(permit);
            sleep(ms(1_000)).await;
        }
        store.now(Does::Answers);
        // No check ends the pause with a reply: it lasts for a tenth of the lifetime at most.
        sleep(lifetime / 5).await;
        assert_eq!(left(&store.looking([held()]), "ann").await, 10, "{is_lost}");
    }
}

/// With no policy left to limit, as many units as the cost may be used.
#[test]
fn a_policy_that_is_left_out_grants_the_cost() {
    let policy = Policy::new("one", TokenBucket::per_minute(100));
    let policy = policy.on_store_failure(OnStoreFailure::Allow);
    let limiter = Limiter::new(Switch::down(&Arc::new(ManualClock::new())), policy);
    let decision = finish(limiter.take_up_to("ann", 10)).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.charged(), 10, "allowed, and not one unit");
}
