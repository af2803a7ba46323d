//! Waiting while an outage starts or ends.

use tokio::time::{Instant, sleep};

use super::fake_store::{Does, Switch, failing, unavailable, unavailable_later};
use crate::support::prelude::*;

fn store() -> Switch {
    Switch::on(&TokioClock::new())
}

/// Reservations stay: each waiter continues at the time that was decided for it.
#[tokio::test(start_paused = true)]
async fn reservations_survive_an_outage() {
    let mut random = Random::new();
    let quotas: [Quota; 3] = [
        TokenBucket::per_second(10).burst(1).try_into().unwrap(),
        LeakyBucket::per_second(10).capacity(1).try_into().unwrap(),
        LeakyBucket::per_second(10).queue(50).try_into().unwrap(),
    ];
    for round in 0..60 {
        let store = store();
        let limiter = Limiter::new(store.clone(), quotas[round % 3]);
        let started = Instant::now();
        // Callers come before the failure, during it, and after it.
        let mut tasks = Vec::new();
        let mut turns = [0_u64; 2];
        for phase in 0..4 {
            let is_up = phase % 2 == 0;
            store.now(match is_up {
                true => Does::Answers,
                false => failing(&mut random),
            });
            for _ in 0..random.between(1, 8) {
                let turn = &mut turns[usize::from(!is_up)];
                let moment = ms(100 * *turn);
                *turn += 1;
                let limiter = limiter.clone();
                let mut task = Box::pin(async move {
                    let permit = acquire(&limiter, "ann", ms(10_000)).await;
                    assert!(permit.is_allowed());
                    let expected = if is_up { Source::Store } else { Source::Local };
                    assert_eq!(permit.decision().source(), expected);
                    assert_eq!(started.elapsed(), moment, "{is_up}");
                });
                // All callers come at one instant, in this order.
                let is_done = (0..3).any(|_| poll(&mut task).is_ready());
                assert_eq!(is_done, moment.is_zero());
                if !is_done {
                    tasks.push(tokio::spawn(task));
                }
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

/// A caller that waits for room checks again, and the store or this process decides then.
#[tokio::test(start_paused = true)]
async fn waiting_for_room_ends_in_the_first_store_that_has_room() {
    for policy in [
        Policy::new("window", FixedWindow::new(2, ms(1_000))),
        Policy::new("aligned", FixedWindow::new(2, ms(1_000)).aligned()),
        Policy::new("sliding", SlidingWindow::new(2, ms(1_000))),
        Policy::new("log", SlidingLog::new(2, ms(1_000))),
        Policy::new("at once", TokenBucket::new(2, ms(1_000)).refill_at_once()),
    ] {
        for (first, then, source) in [
            (Does::Answers, unavailable_later(), Source::Local),
            (unavailable_later(), Does::Answers, Source::Store),
        ] {
            let store = store();
            let limiter = Limiter::new(store.clone(), policy.clone());
            store.now(first);
            for _ in 0..2 {
                assert!(acquire(&limiter, "ann", ms(0)).await.is_allowed());
            }
            let wait = peek(&limiter, "ann").await.retry_after().unwrap();
            let started = Instant::now();
            let task = tokio::spawn(come(&limiter, ms(5_000)));
            sleep(ms(500)).await;
            assert!(!task.is_finished());
            store.now(then);
            let permit = task.await.unwrap().unwrap();
            assert!(permit.is_allowed());
            assert_eq!(started.elapsed(), wait, "{policy:?}");
            assert_eq!(permit.decision().source(), source);
        }
    }
}

/// Callers that wait for a permit get one in this process, and later in the store again.
#[tokio::test(start_paused = true)]
async fn waiting_for_permits_continues_through_an_outage() {
    let held = || Policy::new("held", Concurrency::new(1).lifetime(ms(600_000)));
    let store = store();
    let limiter = Limiter::new(store.clone(), held());
    let of_store = acquire(&limiter, "ann", ms(0)).await;
    let first = tokio::spawn(come(&limiter, ms(60_000)));
    sleep(ms(1_000)).await;
    assert!(!first.is_finished());
    store.now(unavailable());
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.decision().source(), Source::Local);
    let second = tokio::spawn(come(&limiter, ms(60_000)));
    sleep(ms(5_000)).await;
    assert!(!second.is_finished(), "one at a time in this process, too");
    store.now(Does::Answers);
    sleep(ms(5_000)).await;
    assert!(!second.is_finished(), "the store's is held");
    drop(of_store);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.decision().source(), Source::Store);
    drop((first, second));
    // The statements about held permits failed in the outage. The next one also covers this
    // release, and the first reply of the store ended its pause.
    sleep(ms(1)).await;
    for looking in [store.looking([held()]), store.looking_locally([held()])] {
        assert_eq!(left(&looking, "ann").await, 1);
    }
}

/// A policy with `Deny` ends the wait, and so does one with `Allow`.
#[tokio::test(start_paused = true)]
async fn an_outage_ends_waits_that_are_not_decided_locally() {
    for choice in [OnStoreFailure::Deny, OnStoreFailure::Allow] {
        let store = store();
        let window = Policy::new("room", FixedWindow::new(1, ms(1_000)));
        let limiter = Limiter::new(store.clone(), window.on_store_failure(choice));
        assert!(check(&limiter, "ann").await.is_allowed());
        let task = tokio::spawn(come(&limiter, ms(5_000)));
        sleep(ms(500)).await;
        store.now(unavailable());
        match (choice, task.await.unwrap()) {
            (OnStoreFailure::Deny, Err(error)) => assert!(error.is_unavailable()),
            (OnStoreFailure::Allow, Ok(permit)) => {
                assert_eq!(permit.decision().source(), Source::StoreFailure);
            }
            (choice, answer) => panic!("{choice:?}: {answer:?}"),
        }
    }
}
