//! Single cases.

use std::{
    slice,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{Scene, *};
use crate::{
    StoreError,
    store::{Answer, Guarded, Store},
};

/// Buckets that start empty.
struct Empty {
    policy: Compiled,
    denials: Arc<DenialCache>,
    clock: Arc<ManualClock>,
}

impl Empty {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let policy = Policy::new("empty", TokenBucket::per_day(1).initial(0));
        let denials = DenialCache::new(
            Duration::from_secs(10),
            &ProcessContext::new(Some(clock.clone())),
        );
        Self {
            policy: policy.compile(OnStoreFailure::Deny).expect("a policy"),
            denials: denials.expect("a cache"),
            clock,
        }
    }

    fn with<T>(&self, caller: u64, act: impl FnOnce(&Check<'_>) -> T) -> T {
        let key = Key::from(caller);
        let charges = Scene::charges(slice::from_ref(&self.policy), &key, (1, 0));
        act(&Check::new(Operation::Take, &charges))
    }

    /// Looks a caller up. Returns the pending check if the store must decide.
    fn look_up(&self, caller: u64) -> Option<Option<PendingCheck>> {
        self.with(caller, |check| match self.denials.look_up(check) {
            Lookup::Denied(_) => None,
            Lookup::Ask(pending) => Some(pending),
        })
    }

    fn record_decision(&self, caller: u64, pending: Option<PendingCheck>) {
        let decision = self.with(caller, |check| {
            check.decide(self.clock.now_us(), &mut [BucketWords::default()])
        });
        assert_eq!(decision.verdict(), Verdict::Denied);
        record_decision(pending, &decision);
    }

    /// Checks a caller without tokens. Returns whether the store had to decide.
    fn store_denies(&self, caller: u64) -> bool {
        let Some(pending) = self.look_up(caller) else {
            return false;
        };
        self.record_decision(caller, pending);
        true
    }
}

#[test]
fn a_denial_in_flight_during_a_refund_is_not_cached() {
    let empty = Empty::new();
    let in_flight = empty.look_up(1).expect("no denial is cached");
    empty.with(1, |check| drop(empty.denials.resetting(check.charges())));
    empty.record_decision(1, in_flight);
    assert!(empty.store_denies(1));
    assert!(!empty.store_denies(1));

    let in_flight = empty.look_up(2).expect("no denial is cached");
    empty.denials.forget_all();
    empty.record_decision(2, in_flight);
    assert!(empty.store_denies(2));
}

#[test]
fn an_expired_denial_does_not_return_when_the_clock_steps_back() {
    let empty = Empty::new();
    assert!(empty.store_denies(1));
    empty.clock.advance(Duration::from_secs(15));
    // Whatever the store decides, this is not a cached denial.
    drop(empty.look_up(1));
    empty.clock.set_us(empty.clock.now_us() - 8_000_000);
    assert!(empty.store_denies(2));
    assert!(empty.store_denies(1));
}

#[test]
fn a_flood_of_denied_callers_costs_round_trips_and_bounded_room() {
    let empty = Empty::new();
    for caller in 0..100_000 {
        assert!(empty.store_denies(caller));
    }
    let cached = (0..100_000).filter(|caller| empty.look_up(*caller).is_none());
    let cached = cached.count();
    assert!((16_000..=16_384).contains(&cached), "{cached}");
    // The latest caller is cached, because the oldest are evicted.
    assert!(empty.look_up(99_999).is_none());
}

/// Fails, except for one check, which it denies from a cache.
#[derive(Debug)]
struct Failing {
    calls: AtomicUsize,
    cached: usize,
}

impl Store for Failing {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Answer::Now(if number == self.cached {
            Ok(Decision::on_store_failure(Verdict::Denied).cached())
        } else {
            Err(StoreError::unavailable("it is down"))
        })
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_denial_is_no_sign_of_a_healthy_store() {
    let failing = Arc::new(Failing {
        calls: AtomicUsize::new(0),
        cached: 5,
    });
    let (guarded, empty) = (Guarded::new(Arc::clone(&failing)), Empty::new());
    let calls_after = || {
        empty.with(1, |check| drop(guarded.check(check)));
        failing.calls.load(Ordering::Relaxed)
    };
    assert_eq!([(); 7].map(|()| calls_after()), [1, 2, 3, 4, 5, 5, 5]);
    tokio::time::advance(Duration::from_millis(100)).await;
    // A cached denial is not a probe, so the next call is the probe.
    assert_eq!([(); 4].map(|()| calls_after()), [6, 7, 7, 7]);
}
