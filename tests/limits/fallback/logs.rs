//! A failure of the store is one log line, and its recovery another.

use std::thread;

use tokio::time::{advance, sleep};

use super::{
    fake_store::{Does, Switch, finish, soon, unavailable, unavailable_later},
    log_capture::Logging,
};
use crate::support::prelude::*;
use crate::support::web::api;

/// Makes checks by limiters on clones of one store, from several threads at once, at one instant
/// of the paused time.
fn flood(logging: &Logging, store: &Guarded<Switch>, switch: &Switch, does: &[Does; 2]) {
    thread::scope(|threads| {
        for thread in 0..4_usize {
            threads.spawn(move || {
                let _inside = logging.enter();
                let limiter = Limiter::new(store.clone(), TokenBucket::per_second(10));
                let layer = RateLimitLayer::new(api()).store(store.clone());
                for number in 0..250 {
                    switch.now(does[(number + thread) % 2].clone());
                    let _ = finish(limiter.check(number as u64 % 64));
                    if does.iter().all(|does| matches!(does, Does::Answers)) {
                        ask(&layer, plain());
                    }
                }
            });
        }
    });
}

/// Checks until the store was called so often.
async fn call(limiter: &Limiter, switch: &Switch, does: Does, times: u64) {
    switch.now(does);
    let before = switch.calls();
    soon(ms(10_000), async || {
        let _ = limiter.check("ann").await;
        switch.calls() >= before + times
    })
    .await;
}

/// The first kind of failure and each better known kind are logged once: a server that has just
/// died refuses connections, and some calls to it only hang.
#[test]
fn a_new_kind_of_failure_is_one_more_log_line() {
    for (first, logged) in [
        (Does::IsSilent, &["did not answer", "still unavailable"][..]),
        (unavailable(), &["cannot be reached"]),
    ] {
        let logging = Logging::new();
        logging.runtime.block_on(async {
            let switch = Switch::on(&Arc::new(ManualClock::new()));
            let store = Guarded::new(switch.clone()).timeout(ms(5));
            let limiter = Limiter::new(store, TokenBucket::per_second(10));
            call(&limiter, &switch, first, 3).await;
            assert!(logging.lines(1)[0].contains(logged[0]));
            for _ in 0..2 {
                for does in [unavailable(), Does::IsSilent] {
                    call(&limiter, &switch, does, 3).await;
                    let log = logging.lines(logged.len());
                    assert!(
                        log.iter()
                            .zip(logged)
                            .all(|(line, part)| line.contains(part))
                    );
                }
            }
        });
    }
}

#[test]
fn a_failure_and_its_end_are_one_log_line_each() {
    let logging = Logging::new();
    let switch = Switch::on(&Arc::new(ManualClock::new()));
    let store = {
        let _inside = logging.enter();
        Guarded::new(switch.clone())
    };
    let flood = |does: [Does; 2]| flood(&logging, &store, &switch, &does);
    let pass = |time: Duration| logging.runtime.block_on(advance(time));
    let answers = [Does::Answers, Does::Answers];
    flood(answers.clone());
    logging.lines(0);
    for before in [0, 2] {
        flood([unavailable(), unavailable_later()]);
        let line = &logging.lines(before + 1)[before];
        for part in ["ERROR", "unavailable", "on_store_failure"] {
            assert!(line.contains(part), "{line}");
        }
        // Half of the calls have no answer, so the store still fails.
        for _ in 0..5 {
            pass(ms(1_500));
            flood([unavailable_later(), Does::Answers]);
        }
        logging.lines(before + 1);
        pass(ms(1_500));
        // The last failure must leave the breaker closed: a check beside a probe would fail later.
        logging.runtime.block_on(async {
            let limiter = Limiter::new(store.clone(), TokenBucket::per_second(10));
            for does in [Does::Answers, unavailable()] {
                call(&limiter, &switch, does, 1).await;
            }
            sleep(ms(4_999)).await;
        });
        flood(answers.clone());
        logging.lines(before + 1);
        pass(ms(1));
        flood(answers.clone());
        flood(answers.clone());
        let line = &logging.lines(before + 2)[before + 1];
        assert!(line.contains("rate-limit store recovered"), "{line}");
    }
}

/// Another program may write into the store. Such checks are undecided, and the store is well.
#[cfg(feature = "redis")]
#[test]
fn an_overload_and_unexpected_data_are_logged_every_ten_seconds_and_counted() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let errors = runtime.block_on(super::kinds::errors()).into_iter();
    let errors = errors.filter(|(kind, _)| ["flood", "corrupt"].contains(kind));
    let mut counts = Vec::new();
    for (_, error) in errors {
        let logging = Logging::new();
        logging.runtime.block_on(async {
            let switch = Switch::on(&Arc::new(ManualClock::new()));
            let policy = Policy::new("api", TokenBucket::per_second(10));
            let policy = policy.on_store_failure(OnStoreFailure::Deny);
            let limiter = Limiter::new(switch.clone(), policy);
            switch.now(Does::Fails(error));
            for lines in 1..=3 {
                for _ in 0..5 {
                    limiter.check("ann").await.expect_err("no decision");
                }
                let log = logging.lines(lines);
                for part in ["WARN", "left checks undecided"] {
                    assert!(log[lines - 1].contains(part), "{log:?}");
                }
                advance(ms(10_000)).await;
            }
            let found = limiter.metrics().store;
            assert!(found.is_up);
            let failures = found.failures;
            counts.push([
                failures.overloaded,
                failures.corrupt_state,
                failures.total(),
            ]);
        });
    }
    assert_eq!(counts, [[15, 0, 15], [0, 15, 15]]);
}

/// A release or renewal in this process is no answer of the store.
#[test]
fn a_local_permit_does_not_end_the_outage() {
    let logging = Logging::new();
    logging.runtime.block_on(async {
        let store = Switch::down(&Arc::new(ManualClock::new()));
        let limiter = Limiter::new(store, Concurrency::new(10));
        let permit = acquire(&limiter, "ann", ms(0)).await;
        // For longer than a recovery takes there are no checks, then the work is done.
        sleep(ms(60_000)).await;
        drop(permit);
        logging.lines(1);
    });
}
