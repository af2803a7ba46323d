//! A failure of the store is one log line, and its recovery another.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tower_throttle::{Limiter, ManualClock, RateLimitLayer, TokenBucket, store::Guarded};

use super::{
    fake_store::{Does, Switch, unavailable, unavailable_later},
    log_capture::logging_runtime,
};
use crate::support::{
    DEADLINE, eventually_async,
    web::{api, ask, plain},
};

const TASKS: usize = 64;
const REQUESTS: usize = 10_000;

/// Makes checks by limiters on clones of one store, from many tasks at once.
async fn flood(store: &Guarded<Switch>, switch: &Switch, does: [Does; 2]) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let limiter = Limiter::new(store.clone(), TokenBucket::per_second(10));
            let layer = RateLimitLayer::new(api()).store(store.clone());
            let (switch, does) = (switch.clone(), does.clone());
            tokio::spawn(async move {
                for number in 0..REQUESTS / TASKS + 1 {
                    switch.now(does[(number + task) % 2].clone());
                    let _ = limiter.check(task as u64).await;
                    if matches!(does[0], Does::Answers) && matches!(does[1], Does::Answers) {
                        ask(&layer, plain());
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// The first kind of failure and each other kind are logged once, in any order.
#[test]
fn a_new_kind_of_failure_is_one_more_log_line() {
    let (runtime, lines) = logging_runtime(1);
    let run = async move {
        let switch = Switch::on(&Arc::new(ManualClock::new()));
        let store = Guarded::new(switch.clone()).timeout(Duration::from_millis(5));
        let limiter = Limiter::new(store, TokenBucket::per_second(10));
        let fail = async |does: Does| {
            switch.now(does);
            let before = switch.calls();
            eventually_async("three calls", || async {
                let _ = limiter.check("ann").await;
                switch.calls() >= before + 3
            })
            .await;
        };
        fail(Does::IsSilent).await;
        let log = lines();
        assert_eq!(log.len(), 1, "{log:#?}");
        assert!(log[0].contains("did not answer"), "{log:#?}");
        for _ in 0..2 {
            fail(unavailable()).await;
            let log = lines();
            assert_eq!(log.len(), 2, "{log:#?}");
            assert!(log[1].contains("still unavailable"), "{log:#?}");
            assert!(log[1].contains("unavailable"), "{log:#?}");
            fail(Does::IsSilent).await;
        }
        assert_eq!(lines().len(), 2, "{:#?}", lines());
    };
    runtime.block_on(runtime.spawn(run)).unwrap();
}

/// A server that has just died refuses connections, and some calls to it only hang.
#[test]
fn a_missed_deadline_is_not_logged_after_a_better_known_failure() {
    let (runtime, lines) = logging_runtime(1);
    let run = async move {
        let switch = Switch::on(&Arc::new(ManualClock::new()));
        let store = Guarded::new(switch.clone()).timeout(Duration::from_millis(5));
        let limiter = Limiter::new(store, TokenBucket::per_second(10));
        for does in [unavailable(), Does::IsSilent] {
            switch.now(does);
            let before = switch.calls();
            eventually_async("three calls", || async {
                let _ = limiter.check("ann").await;
                switch.calls() >= before + 3
            })
            .await;
        }
        let log = lines();
        assert_eq!(log.len(), 1, "{log:#?}");
        assert!(log[0].contains("cannot be reached"), "{log:#?}");
    };
    runtime.block_on(runtime.spawn(run)).unwrap();
}

#[test]
fn a_failure_and_its_end_are_one_log_line_each() {
    let (runtime, lines) = logging_runtime(4);
    let run = async move {
        let switch = Switch::on(&Arc::new(ManualClock::new()));
        let store = Guarded::new(switch.clone());
        flood(&store, &switch, [Does::Answers, Does::Answers]).await;
        assert_eq!(lines(), Vec::<String>::new(), "all is well");
        for round in 0..2 {
            flood(&store, &switch, [unavailable(), unavailable_later()]).await;
            let log = lines();
            assert_eq!(log.len(), 2 * round + 1, "{log:#?}");
            assert!(log[2 * round].contains("ERROR"), "{log:#?}");
            assert!(log[2 * round].contains("unavailable"), "{log:#?}");
            assert!(log[2 * round].contains("on_store_failure"), "{log:#?}");
            // Half of the calls have no answer, so the store still fails.
            flood(&store, &switch, [unavailable_later(), Does::Answers]).await;
            assert_eq!(lines().len(), 2 * round + 1, "{:#?}", lines());
            switch.now(unavailable());
            let limiter = Limiter::new(store.clone(), TokenBucket::per_second(10));
            let _ = limiter.check("ann").await;
            let started = Instant::now();
            while lines().len() == 2 * round + 1 {
                assert!(started.elapsed() < DEADLINE, "it was never logged");
                flood(&store, &switch, [Does::Answers, Does::Answers]).await;
            }
            assert!(started.elapsed().as_millis() >= 1_000, "logged too early");
            flood(&store, &switch, [Does::Answers, Does::Answers]).await;
            let log = lines();
            assert_eq!(log.len(), 2 * round + 2, "{log:#?}");
            assert!(
                log[2 * round + 1].contains("rate-limit store recovered"),
                "{log:#?}"
            );
        }
    };
    // The work runs on a thread of the runtime, whose log lines the test reads.
    runtime.block_on(runtime.spawn(run)).unwrap();
}
