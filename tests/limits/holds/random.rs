//! Random holds of several processes: what is charged in the end is what was settled.

use tower_throttle::Reserved;

use super::{Fate, LIFETIME, Watched, pass, reserve, tokens};
use crate::support::prelude::*;

const CAPACITY: u64 = 1_000_000_000;

/// The fewest and the most units that a hold may be charged.
type Bounds = (u64, u64);

struct Held {
    reserved: Reserved,
    units: u64,
    /// A fault may have kept it from being extended.
    may_have_lapsed: bool,
}

/// Settles a hold at random. `is_faulty`: whether the settlement may be lost.
async fn settle(held: Held, random: &mut Random, is_faulty: bool) -> Bounds {
    let (reserved, units) = (held.reserved, held.units);
    let used = match random.below(5) {
        0 => {
            drop(reserved);
            units
        }
        1 => {
            drop(reserved.release_on_drop());
            0
        }
        2 => {
            let _ = reserved.release().await;
            0
        }
        _ => {
            let used = random.below(units * 2 + 1);
            let _ = reserved.settle(used).await;
            used
        }
    };
    if !is_faulty && !held.may_have_lapsed {
        return (used, used);
    }
    // What lapsed was charged before, and what exceeds it may be lost with the settlement.
    let least = if is_faulty { used.min(units) } else { used };
    (least, used.max(units))
}

async fn simulate(seed: u64, has_faults: bool) {
    let mut random = Random::from_seed(seed);
    let store = Watched::new();
    let quota = TokenBucket::without_refill(CAPACITY);
    // Each limiter on such a store has its own holds, as a process has.
    let processes = [(); 3].map(|()| Limiter::new(Arc::clone(&store), tokens(quota)));
    let (mut held, mut least, mut most) = (Vec::<Held>::new(), 0, 0);
    let mut settlement_fault = false;
    for _ in 0..400 {
        match random.below(10) {
            0..=3 => {
                let process = &processes[random.below(3) as usize];
                let units = random.below(50);
                let reserved = reserve(process, units).await;
                assert!(reserved.is_allowed());
                held.push(Held {
                    reserved,
                    units,
                    may_have_lapsed: false,
                });
            }
            4..=6 if !held.is_empty() => {
                let one = held.swap_remove(random.below(held.len() as u64) as usize);
                let (from, to) = settle(one, &mut random, settlement_fault).await;
                (least, most) = (least + from, most + to);
            }
            7 if has_faults => {
                let fates = [None, Some(Fate::Lost), Some(Fate::Unanswered)];
                let fate = fates[random.below(3) as usize];
                match random.below(2) {
                    0 => {
                        store.set(Operation::Settle, fate);
                        settlement_fault = fate.is_some();
                    }
                    _ => store.set(Operation::Renew, fate),
                }
            }
            8 if has_faults => {
                // No task runs meanwhile.
                tokio::time::advance(LIFETIME * 2).await;
                held.iter_mut().for_each(|held| held.may_have_lapsed = true);
            }
            _ => {
                let time = Duration::from_millis(random.below(1_500));
                pass(time).await;
                if has_faults {
                    held.iter_mut().for_each(|held| held.may_have_lapsed = true);
                }
            }
        }
    }
    for operation in [Operation::Settle, Operation::Renew] {
        store.set(operation, None);
    }
    while let Some(one) = held.pop() {
        let (from, to) = settle(one, &mut random, false).await;
        (least, most) = (least + from, most + to);
    }
    // All that nobody settled lapses.
    pass(LIFETIME * 3).await;
    let _ = processes[0].check_n("ann", 0).await.expect("a decision");
    let left = left(&processes[0], "ann").await;
    let charged = CAPACITY - left;
    let is_within = (least..=most).contains(&charged);
    assert!(is_within, "seed {seed}: {charged} of {least} to {most}");
    assert!(has_faults || least == most, "seed {seed}");
    for process in &processes {
        let seen = process.metrics().store;
        assert_eq!(seen.unsettled_units, 0, "seed {seed}");
        let settlements = seen.settlements;
        if !has_faults {
            assert_eq!((settlements.late, settlements.lost), (0, 0), "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_holds_of_three_processes_charge_what_was_settled() {
    for seed in 0..40 {
        simulate(seed, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_faults_charge_no_more_than_estimates_and_no_less_than_what_was_used_of_them() {
    for seed in 0..40 {
        simulate(seed, true).await;
    }
}
