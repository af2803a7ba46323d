//! One case each.

use std::{slice, sync::atomic::AtomicUsize};

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
            denials: denials.expect("they are remembered"),
            clock,
        }
    }

    fn with<T>(&self, caller: u64, act: impl FnOnce(&Check<'_>) -> T) -> T {
        let key = Key::from(caller);
        let legs = Scene::legs(slice::from_ref(&self.policy), &key, (1, 0));
        act(&Check::new(Operation::Take, &legs))
    }

    /// What the store is asked, if it is.
    fn asks(&self, caller: u64) -> Option<Option<PendingCheck>> {
        self.with(caller, |check| match self.denials.look_up(check) {
            Lookup::Denied(_) => None,
            Lookup::Ask(pending) => Some(pending),
        })
    }

    fn record_decision(&self, caller: u64, pending: Option<PendingCheck>) {
        let decision = self.with(caller, |check| {
            check.decide(self.clock.now_us(), &mut [Slot::default()])
        });
        assert_eq!(decision.verdict(), Verdict::Denied);
        record_decision(pending, &decision);
    }

    fn is_asked_and_denied(&self, caller: u64) -> bool {
        let Some(pending) = self.asks(caller) else {
            return false;
        };
        self.record_decision(caller, pending);
        true
    }
}

#[test]
fn what_is_on_its_way_while_something_is_given_back_is_not_remembered() {
    let empty = Empty::new();
    let on_its_way = empty.asks(1).expect("nothing is known");
    empty.with(1, |check| drop(empty.denials.resetting(check.charges())));
    empty.record_decision(1, on_its_way);
    assert!(empty.is_asked_and_denied(1));
    assert!(!empty.is_asked_and_denied(1));

    let on_its_way = empty.asks(2).expect("nothing is known");
    empty.denials.forget_all();
    empty.record_decision(2, on_its_way);
    assert!(empty.is_asked_and_denied(2));
}

#[test]
fn what_has_ended_does_not_come_back_when_the_clock_does() {
    let empty = Empty::new();
    assert!(empty.is_asked_and_denied(1));
    empty.clock.advance(Duration::from_secs(15));
    // Whatever becomes of it: not a denial that is remembered.
    drop(empty.asks(1));
    empty.clock.set_us(empty.clock.now_us() - 8_000_000);
    assert!(empty.is_asked_and_denied(2));
    assert!(empty.is_asked_and_denied(1));
}

#[test]
fn a_flood_of_denied_callers_costs_trips_and_no_more_places() {
    let empty = Empty::new();
    for caller in 0..100_000 {
        assert!(empty.is_asked_and_denied(caller));
    }
    let remembered = (0..100_000).filter(|caller| empty.asks(*caller).is_none());
    let remembered = remembered.count();
    assert!((16_000..=16_384).contains(&remembered), "{remembered}");
    // Who came last is there: the oldest make room.
    assert!(empty.asks(99_999).is_none());
}

/// Fails, but for one denial that it remembers.
#[derive(Debug)]
struct Fails {
    asked: AtomicUsize,
    remembers: usize,
}

impl Store for Fails {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        Answer::Now(if number == self.remembers {
            Ok(Decision::on_store_failure(Verdict::Denied).remembered())
        } else {
            Err(StoreError::unavailable("it is down"))
        })
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_is_remembered_says_nothing_of_the_store() {
    let fails = Arc::new(Fails {
        asked: AtomicUsize::new(0),
        remembers: 5,
    });
    let (guarded, empty) = (Guarded::new(Arc::clone(&fails)), Empty::new());
    let asked_after = || {
        empty.with(1, |check| drop(guarded.check(check)));
        fails.asked.load(Ordering::Relaxed)
    };
    assert_eq!([(); 7].map(|()| asked_after()), [1, 2, 3, 4, 5, 5, 5]);
    tokio::time::advance(Duration::from_millis(100)).await;
    // What is remembered is no probe: the next one is.
    assert_eq!([(); 4].map(|()| asked_after()), [6, 7, 7, 7]);
}
