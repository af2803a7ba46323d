//! The guard around a store: its deadline and its breaker.

use tokio::time::{Instant, sleep, timeout};

use super::fake_store::{Does, Switch, finish, soon, unavailable, unavailable_later};
use crate::support::prelude::*;

fn switch() -> Switch {
    Switch::on(&Arc::new(ManualClock::new()))
}

/// Returns a limiter that returns the store's errors.
fn denying(store: impl Store) -> Limiter {
    let policy = Policy::new("guarded", TokenBucket::per_second(1_000_000));
    Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny))
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_exact() {
    let mut random = Random::new();
    for number in 0..300 {
        let takes = ms(random.between(1, 600));
        let store = switch();
        store.now(Does::AnswersAfter(takes));
        let guarded = Guarded::new(store);
        let (deadline, guarded) = match number % 10 {
            // The default.
            0 => (ms(50), guarded),
            _ => {
                let deadline = ms(random.between(2, 500));
                (deadline, guarded.timeout(deadline))
            }
        };
        let limiter = denying(guarded);
        let check = limiter.check("ann");
        // The check was not polled yet, so its timeout has not started.
        sleep(ms(random.between(0, 1_000))).await;
        let started = Instant::now();
        let answer = check.await;
        assert_eq!(started.elapsed(), deadline.min(takes));
        match answer {
            Ok(_) => assert!(takes <= deadline),
            Err(error) => assert!(error.is_timeout() && takes >= deadline, "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_the_breaker() {
    let store = switch();
    let limiter = denying(Guarded::new(store.clone()));
    store.now(unavailable());
    (0..4).for_each(|_| assert!(finish(limiter.check("ann")).is_err()));
    store.now(Does::Answers);
    assert!(finish(limiter.check("ann")).is_ok(), "four are not five");
    store.now(unavailable());
    let before = store.calls();
    for _ in 0..1_000 {
        assert!(finish(limiter.check("ann")).unwrap_err().is_unavailable());
    }
    assert_eq!(store.calls() - before, 5);
}

/// A caller that comes while the breaker is open learns what failed.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_names_the_latest_failure() {
    let limiter = denying(Guarded::new(DownWith(Fallback::default())));
    for number in 0..10 {
        let error = finish(limiter.check("ann")).unwrap_err().to_string();
        assert!(error.contains("it is down"), "{number}: {error}");
    }
}

/// Opens after ten failures that are half of all calls, not after nine or a third.
#[tokio::test(start_paused = true)]
async fn half_of_all_calls_failing_opens_the_breaker_and_a_third_does_not() {
    for (every, expected) in [(2, 10), (3, 200)] {
        let store = switch();
        let limiter = denying(Guarded::new(store.clone()));
        let mut failed = 0;
        for number in 0..600 {
            let fails = number % every == 1;
            store.now(if fails { unavailable() } else { Does::Answers });
            let before = store.calls();
            let answer = finish(limiter.check("ann"));
            if store.calls() == before {
                assert!(answer.is_err(), "open");
                break;
            }
            assert_eq!(answer.is_err(), fails);
            failed += u64::from(fails);
        }
        assert_eq!(failed, expected, "one of {every}");
    }
}

async fn opened(store: &Switch, limiter: &Limiter) {
    store.now(unavailable_later());
    let is_open = || async {
        let before = store.calls();
        assert!(limiter.check("ann").await.is_err());
        store.calls() == before
    };
    eventually_async("an open breaker", is_open).await;
}

/// Callers that leave do not end its pauses either: a probe goes on without its caller.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_leaves_still_ends() {
    let store = switch();
    let limiter = denying(Guarded::new(store.clone()).timeout(ms(30)));
    opened(&store, &limiter).await;
    store.now(Does::IsSilent);
    for pause in [50, 100, 200, 400, 800] {
        let (before, started) = (store.calls(), Instant::now());
        while store.calls() == before {
            let _ = timeout(ms(1), limiter.check("ann")).await;
            sleep(ms(1)).await;
        }
        let paused = started.elapsed();
        assert!(paused + ms(35) >= ms(pause), "{paused:?} of {pause} ms");
        assert!(paused <= ms(pause * 5 / 4 + 35), "{paused:?} of {pause} ms");
        assert!(limiter.check("bob").await.is_err(), "one at a time");
    }
    store.now(Does::Answers);
    soon(ms(1_400), async || limiter.check("ann").await.is_ok()).await;
}

/// A guard inside a guard opens and closes like one.
#[tokio::test(start_paused = true)]
async fn nested_guards_decide_as_one() {
    let store = switch();
    let inner = Guarded::new(store.clone()).timeout(ms(5));
    let limiter = denying(Guarded::new(Guarded::new(inner)).timeout(ms(20)));
    for failure in [unavailable(), Does::IsSilent, unavailable_later()] {
        assert!(limiter.check("ann").await.is_ok());
        store.now(failure);
        let (before, started) = (store.calls(), Instant::now());
        for _ in 0..2_000 {
            assert!(limiter.check("ann").await.is_err());
            sleep(ms(1)).await;
        }
        // At most the first five calls, and a probe each 50 ms.
        let probes = started.elapsed().as_millis() as u64 / 50;
        assert!(store.calls() - before <= 5 + probes, "too many calls");
        store.now(Does::Answers);
        soon(ms(4_000), async || limiter.check("ann").await.is_ok()).await;
    }
}
