use std::{
    borrow::Cow,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::Duration,
};

use super::{Holds, Settlement};
use crate::{
    Decision, FixedWindow, Key, MemoryStore, Policy, StoreError,
    admission::refund::{HeldCharges, RefundGuard},
    charge::{Charge, Check, Operation},
    clock::ManualClock,
    metrics::Recorder,
    policy::Compiled,
    store::{Answer, Store, checked::Checked, handle::StoreHandle},
};

const LIFETIME: Duration = Duration::from_secs(2);

fn policy() -> Policy {
    Policy::new("tokens", FixedWindow::per_day(1_000))
}

fn compile(policy: &Policy) -> Compiled {
    policy.compile(Default::default()).expect("a policy")
}

/// Holds this many units, or charges nothing if the policy does not hold.
fn hold(store: &StoreHandle, policy: &Compiled, units: u64, is_debited: bool) -> Holds {
    let cost = if policy.demand.hold.is_some() {
        units
    } else {
        0
    };
    let demand = Cow::Owned(policy.demand.of_units(cost));
    let mut charge = policy.charge(Cow::Owned(Key::from("ann")), demand);
    charge.hold(cost);
    let charges = [charge];
    let Checked::Now(Ok(decision)) = store.check(&Check::new(Operation::Take, &charges)) else {
        panic!("it decides at once");
    };
    assert!(decision.is_allowed());
    let recorder = Recorder::new(None, "api".into(), [&policy.name], None, None);
    Holds::new(
        store,
        &charges,
        &[],
        &decision,
        |_| (0, is_debited),
        &recorder,
    )
    .expect("a hold")
}

fn charged(store: &StoreHandle, policy: &Compiled) -> u64 {
    let demand = Cow::Borrowed(&policy.demand);
    let charges = [policy.charge(Cow::Owned(Key::from("ann")), demand)];
    let Checked::Now(Ok(decision)) = store.check(&Check::new(Operation::Peek, &charges)) else {
        panic!("it decides at once");
    };
    let policy = decision.policies().next().expect("a policy");
    policy.capacity() - policy.remaining()
}

#[test]
fn of_many_settlements_at_once_exactly_one_wins() {
    const THREADS: u64 = 8;
    let policy = compile(&policy().hold_for(LIFETIME));
    for round in 0..200 {
        let store = StoreHandle::new(Arc::new(MemoryStore::new()));
        let holds = hold(&store, &policy, 100, false);
        let (together, winners) = (Barrier::new(THREADS as usize), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for units in 1..=THREADS {
                let (holds, together, winners) = (holds.clone(), &together, &winners);
                scope.spawn(move || {
                    together.wait();
                    let settlement = match units {
                        1 => Settlement::Full,
                        2 => Settlement::Release,
                        _ => Settlement::Units(units),
                    };
                    if holds.settle("tokens", settlement) {
                        winners.lock().expect("no panic").push(settlement);
                    }
                });
            }
        });
        let winners = winners.into_inner().expect("no panic");
        let [winner] = winners[..] else {
            panic!("round {round}: {winners:?}");
        };
        assert_eq!(holds.settled("tokens"), Some(winner));
        drop(holds);
        let expected = match winner {
            Settlement::Full => 100,
            Settlement::Release => 0,
            Settlement::Units(units) => units,
        };
        assert_eq!(charged(&store, &policy), expected, "round {round}");
    }
}

#[test]
fn a_policy_that_cannot_hold_is_debited() {
    let policy = compile(&policy());
    for (settlement, expected) in [
        (Settlement::Full, 1),
        (Settlement::Release, 0),
        (Settlement::Units(7), 7),
        (Settlement::Units(5_000), 1_000),
    ] {
        let store = StoreHandle::new(Arc::new(MemoryStore::new()));
        let holds = hold(&store, &policy, 0, true);
        assert_eq!(holds.units("tokens"), Some(1));
        assert!(holds.settle("tokens", settlement));
        drop(holds);
        assert_eq!(charged(&store, &policy), expected, "{settlement:?}");
    }
}

#[test]
fn what_is_held_is_released_by_a_caller_that_leaves() {
    let policy = compile(&policy().hold_for(LIFETIME));
    let store = StoreHandle::new(Arc::new(MemoryStore::new()));
    let demand = Cow::Owned(policy.demand.of_units(100));
    let mut charge = policy.charge(Cow::Owned(Key::from("ann")), demand);
    // The rest is charged at once.
    for held in [0, 40, 100] {
        charge.hold(held);
        let charges = std::slice::from_ref(&charge);
        let Checked::Now(Ok(decision)) = store.check(&Check::new(Operation::Take, charges)) else {
            panic!("it decides at once");
        };
        assert_eq!(charged(&store, &policy), 100);
        let taken = HeldCharges::new(&store, charges);
        let now = tokio::time::Instant::now();
        let nothing = Default::default();
        drop(RefundGuard::new(taken, nothing, &decision, now, None));
        assert_eq!(charged(&store, &policy), 0, "{held} held");
    }
}

/// A store in memory that sends no extensions while its breaker is open.
#[derive(Debug)]
struct Broken {
    memory: MemoryStore,
    refused: Mutex<usize>,
}

impl Store for Broken {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let mut refused = self.refused.lock().expect("no panic");
        if check.operation() == Operation::Renew && *refused > 0 {
            *refused -= 1;
            return Answer::Now(Err(StoreError::circuit_open(None)));
        }
        self.memory.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.memory.reset(charges)
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_was_not_sent_is_tried_again() {
    let clock = Arc::new(ManualClock::new());
    let memory = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    let broken = Arc::new(Broken {
        memory,
        refused: Mutex::new(3),
    });
    let policy = compile(&policy().hold_for(LIFETIME));
    let store = StoreHandle::new(Arc::clone(&broken) as Arc<dyn Store>);
    let holds = hold(&store, &policy, 100, false);
    for _ in 0..200 {
        clock.advance(Duration::from_millis(50));
        tokio::time::advance(Duration::from_millis(50)).await;
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(*broken.refused.lock().expect("no panic"), 0);
    assert!(holds.settle("tokens", Settlement::Release));
    assert_eq!(charged(&store, &policy), 0);
    assert_eq!(store.metrics().settlements.released, 1);
}
