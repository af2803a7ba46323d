//! Each method of a limiter that decides.

use super::{assert_counted, is_pending};
use crate::prelude::*;

fn ten() -> Policy {
    Policy::new("ten", TokenBucket::per_day(10))
}

#[test]
fn each_method_that_takes_is_counted_once() {
    let everyone = Policy::new("everyone", FixedWindow::per_day(1_000)).shared();
    let one = Limiter::builder().policy(ten());
    let two = one.clone().policy(everyone);
    for (builder, has_two) in [(one, false), (two, true)] {
        let limiter = builder.build().expect("a limiter");
        let passes = async |units| {
            limiter
                .check_n("ann", units)
                .await
                .expect("a decision")
                .is_allowed()
        };
        at_once(async {
            assert!(limiter.check("ann").await.expect("a decision").is_allowed());
            assert!(limiter.check_now("ann").expect("a decision").is_allowed());
            assert!(passes(3).await && !passes(6).await && !passes(2_000).await);
            for (units, charged) in [(100, 5), (1, 0)] {
                let taken = limiter.take_up_to("ann", units).await;
                assert_eq!(taken.expect("a decision").charged(), charged);
            }
            for (caller, units, is_allowed) in [("ann", 1, false), ("bob", 2, true)] {
                let permit = limiter.acquire_n(caller, units, Duration::ZERO).await;
                assert_eq!(permit.expect("a decision").is_allowed(), is_allowed);
            }
        });
        let mut expected = "allowed 5, denied 3, impossible 1, by store 9, ten: allowed 4, \
                            ten: near 1, ten: denied 3, ten: impossible 1"
            .to_owned();
        if has_two {
            expected += ", everyone: allowed 8, everyone: impossible 1";
        }
        assert_counted(&limiter.metrics(), &expected);
    }
}

#[test]
fn what_only_looks_or_corrects_is_not_counted_and_what_policies_do_not_support_is_a_mistake() {
    let limiter = Limiter::new(MemoryStore::new(), ten());
    at_once(async {
        let _ = limiter.peek("ann").await.expect("a decision");
        let _ = limiter.debit("ann", 3).await.expect("a decision");
        let _ = limiter.credit("ann", 3).await.expect("a decision");
        limiter.reset("ann").await.expect("a store");
        limiter.reset_shared().await.expect("a store");
    });
    assert_counted(&limiter.metrics(), "");
    // The store cannot answer at once.
    let limiter = Limiter::new(Slow::new(MemoryStore::new()), ten());
    let error = limiter.check_now("ann").expect_err("it would wait");
    assert!(error.is_unsupported());
    assert_counted(&limiter.metrics(), "");

    let limiter = Limiter::new(MemoryStore::new(), Policy::new("held", Concurrency::new(1)));
    at_once(async {
        let error = limiter.check("ann").await.expect_err("no permit to hold");
        assert!(error.is_unsupported());
        assert!(limiter.check_now("ann").is_err());
        assert!(limiter.take_up_to("ann", 1).await.is_err());
    });
    assert_counted(&limiter.metrics(), "misconfigured 3");
}

#[test]
fn a_check_that_is_dropped_before_the_answer_is_cancelled() {
    let slow = Slow::new(MemoryStore::new());
    let limiter = Limiter::new(slow.clone(), ten());
    // Never polled: nothing was asked.
    drop(limiter.check("ann"));
    assert_counted(&limiter.metrics(), "");
    let mut checks: Vec<Pin<Box<dyn Future<Output = bool>>>> = vec![
        Box::pin(async { limiter.check("ann").await.is_ok() }),
        Box::pin(async { limiter.check_n("ann", 2).await.is_ok() }),
        Box::pin(async { limiter.take_up_to("ann", 2).await.is_ok() }),
        Box::pin(async { limiter.acquire("ann", Duration::ZERO).await.is_ok() }),
    ];
    for check in &mut checks {
        assert!(is_pending(check));
    }
    assert_counted(&limiter.metrics(), "");
    drop(checks);
    assert_counted(&limiter.metrics(), "cancelled 4");
}
