//! In an outage, this process decides as a memory store would.

use super::{
    fake_store::{Switch, failing, finish},
    quotas::{ALGORITHMS, concurrency, quota, quota_of, step},
};
use crate::support::overlaid::{Asked, seen};
use crate::support::prelude::*;

#[track_caller]
fn assert_same(local: &Decision, plain: &Decision) {
    assert_eq!(local.source(), Source::Local);
    assert_eq!(plain.source(), Source::Store);
    assert_eq!(local.decided_at(), plain.decided_at());
    assert_eq!(seen(local), seen(plain));
    let numbers = tower_throttle::compat::cl_throttle;
    assert_eq!(numbers(local), numbers(plain));
}

/// Returns a cost: mostly small, sometimes about the capacity, sometimes above it.
fn cost(random: &mut Random, quotas: &[Quota]) -> u64 {
    let capacity = quotas[random.below(quotas.len() as u64) as usize].capacity();
    match random.below(6) {
        0 => 0,
        1 | 2 => 1,
        3 => random.between(0, capacity + 1),
        4 => (capacity + 2).saturating_sub(random.below(4)),
        _ => random.bits_up_to(2 * capacity + 2),
    }
}

/// Returns a store that is down, and limiters on it and on a store in memory, with its clock.
fn two(quotas: &[Quota]) -> (Switch, [Limiter; 2], Arc<ManualClock>) {
    let (plain, clock) = manual_store();
    let store = Switch::down(&clock);
    let policies = || {
        let quotas = quotas.iter().enumerate();
        quotas.map(|(number, quota)| {
            let policy = Policy::new(format!("policy {number}"), *quota);
            // A constant cost must fit.
            policy.cost(quota.capacity().min(2))
        })
    };
    let local = limiter_of(store.clone(), policies());
    (store, [local, limiter_of(plain, policies())], clock)
}

fn walk(random: &mut Random, quotas: &[Quota]) {
    let (store, [local, plain], clock) = two(quotas);
    for _ in 0..150 {
        store.now(failing(random));
        let key = random.one_of(&["ann", "bob", ""]);
        let units = cost(random, quotas);
        let asked = match random.below(12) {
            0 => Asked::Check,
            1 | 2 => Asked::CheckN(units),
            3 => Asked::UpTo(units),
            4 => Asked::Debit(units),
            5 => Asked::Peek,
            6 => {
                let error = finish(local.credit(key, units)).unwrap_err();
                assert!(error.is_unavailable(), "{error}");
                continue;
            }
            7 => {
                assert!(finish(local.reset(key)).unwrap_err().is_unavailable());
                finish(plain.reset(key)).unwrap();
                continue;
            }
            _ => {
                clock.advance(step(random, quotas));
                continue;
            }
        };
        let [local, plain] = [&local, &plain].map(|limiter| {
            let decision = finish(asked.of(limiter, key)).unwrap();
            decision.expect("it decides")
        });
        assert_same(&local, &plain);
    }
    assert_eq!(store.memory().len(), 0, "the store was charged");
}

#[test]
fn every_algorithm_alone_or_with_others_decides_in_this_process_as_in_a_store() {
    let mut random = Random::new();
    for round in 0..walks(80) as usize * ALGORITHMS {
        let mut quotas = vec![quota_of(round % ALGORITHMS, &mut random)];
        let others = random.below(2) * random.between(1, 3);
        quotas.extend((0..others).map(|_| quota(&mut random)));
        walk(&mut random, &quotas);
    }
}

/// Permits come and go beside another policy, with lifetimes that end.
#[test]
fn permits_are_held_in_this_process_as_in_a_store() {
    let mut random = Random::new();
    for round in 0..walks(300) {
        let mut quotas = vec![concurrency(&mut random)];
        if round % 2 == 0 {
            quotas.push(quota(&mut random));
        }
        let (store, [local, plain], clock) = two(&quotas);
        let mut held = Vec::new();
        for _ in 0..100 {
            let key = random.one_of(&["ann", "bob"]);
            let units = random.between(0, quotas[0].capacity() + 1);
            match random.below(5) {
                0 if !held.is_empty() => {
                    let place = random.below(held.len() as u64) as usize;
                    drop::<(Permit, Permit)>(held.swap_remove(place));
                }
                1 => clock.advance(Duration::from_millis(random.bits_up_to(40_000))),
                2 => {
                    let local = finish(local.peek(key)).unwrap();
                    assert_same(&local, &finish(plain.peek(key)).unwrap());
                }
                _ => {
                    let wait = Duration::ZERO;
                    let local = finish(local.acquire_n(key, units, wait)).unwrap();
                    let plain = finish(plain.acquire_n(key, units, wait)).unwrap();
                    assert_same(local.decision(), plain.decision());
                    held.push((local, plain));
                }
            }
        }
        drop(held);
        for key in ["ann", "bob"] {
            let left = finish(left(&local, key));
            assert_eq!(left, quotas[0].capacity(), "permits leaked");
        }
        assert_eq!(store.memory().len(), 0, "the store was charged");
    }
}
