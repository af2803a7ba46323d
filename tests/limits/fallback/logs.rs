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

/// Checks until the store was called three times.
async fn fail(limiter: &Limiter, switch: &Switch, does: Does) {
    switch.now(does);
    let before = switch.calls();
    soon(ms(10_000), async || {
        let _ = limiter.check("ann").await;
        switch.calls() >= before + 3
    })
    .await;
}

/// The first kind of failure and each other kind are logged once, in any order.
#[test]
fn a_new_kind_of_failure_is_one_more_log_line() {
    let logging = Logging::new();
    logging.runtime.block_on(async {
        let switch = Switch::on(&Arc::new(ManualClock::new()));
        let store = Guarded::new(switch.clone()).timeout(ms(5));
        let limiter = Limiter::new(store, TokenBucket::per_second(10));
        fail(&limiter, &switch, Does::IsSilent).await;
        let log = logging.lines();
        assert_eq!(log.len(), 1, "{log:#?}");
        assert!(log[0].contains("did not answer"), "{log:#?}");
        for _ in 0..2 {
            fail(&limiter, &switch, unavailable()).await;
            let log = logging.lines();
            assert_eq!(log.len(), 2, "{log:#?}");
            assert!(log[1].contains("still unavailable"), "{log:#?}");
            assert!(log[1].contains("unavailable"), "{log:#?}");
            fail(&limiter, &switch, Does::IsSilent).await;
        }
        let log = logging.lines();
        assert_eq!(log.len(), 2, "{log:#?}");
    });
}

/// A server that has just died refuses connections, and some calls to it only hang.
#[test]
fn a_missed_deadline_is_not_logged_after_a_better_known_failure() {
    let logging = Logging::new();
    logging.runtime.block_on(async {
        let switch = Switch::on(&Arc::new(ManualClock::new()));
        let store = Guarded::new(switch.clone()).timeout(ms(5));
        let limiter = Limiter::new(store, TokenBucket::per_second(10));
        for does in [unavailable(), Does::IsSilent] {
            fail(&limiter, &switch, does).await;
        }
        let log = logging.lines();
        assert_eq!(log.len(), 1, "{log:#?}");
        assert!(log[0].contains("cannot be reached"), "{log:#?}");
    });
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
    assert_eq!(logging.lines(), Vec::<String>::new(), "all is well");
    for round in 0..2 {
        flood([unavailable(), unavailable_later()]);
        let log = logging.lines();
        assert_eq!(log.len(), 2 * round + 1, "{log:#?}");
        assert!(log[2 * round].contains("ERROR"), "{log:#?}");
        assert!(log[2 * round].contains("unavailable"), "{log:#?}");
        assert!(log[2 * round].contains("on_store_failure"), "{log:#?}");
        // Half of the calls have no answer, so the store still fails.
        for _ in 0..5 {
            pass(ms(1_500));
            flood([unavailable_later(), Does::Answers]);
        }
        assert_eq!(logging.lines().len(), 2 * round + 1);
        pass(ms(1_500));
        // The last failure must leave the breaker closed: a check beside a probe would fail later.
        logging.runtime.block_on(async {
            let limiter = Limiter::new(store.clone(), TokenBucket::per_second(10));
            for does in [Does::Answers, unavailable()] {
                switch.now(does);
                let before = switch.calls();
                soon(ms(3_000), async || {
                    let _ = limiter.check("ann").await;
                    switch.calls() > before
                })
                .await;
            }
            sleep(ms(4_999)).await;
        });
        flood(answers.clone());
        assert_eq!(logging.lines().len(), 2 * round + 1, "logged too early");
        pass(ms(1));
        flood(answers.clone());
        flood(answers.clone());
        let log = logging.lines();
        assert_eq!(log.len(), 2 * round + 2, "{log:#?}");
        assert!(
            log[2 * round + 1].contains("rate-limit store recovered"),
            "{log:#?}"
        );
    }
}
