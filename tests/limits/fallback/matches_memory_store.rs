//! In an outage, this process decides as a memory store would.

use tower_throttle::HeaderFormat;

use super::{
    fake_store::{Switch, finish, unavailable, unavailable_later},
    quotas::{ALGORITHMS, concurrency, quota, quota_of},
};
use crate::support::prelude::*;
use crate::support::web::{api, day, get};

/// Shows all fields of a decision except its source.
fn reported(decision: &Decision) -> String {
    let policies: Vec<_> = decision
        .policies()
        .map(|policy| {
            (
                (policy.name().to_owned(), policy.quota(), policy.capacity()),
                (policy.cost(), policy.charged(), policy.remaining()),
                (policy.reset_after(), policy.retry_after(), policy.delay()),
                (policy.is_denied(), policy.is_impossible()),
                tower_throttle::compat::cl_throttle_for_policy(policy),
            )
        })
        .collect();
    let whole = (
        (decision.verdict(), decision.decided_at()),
        (decision.retry_after(), decision.delay(), decision.charged()),
        tower_throttle::compat::cl_throttle(decision),
    );
    format!("{whole:?} {policies:?}")
}

#[track_caller]
fn assert_same(local: &Decision, plain: &Decision) {
    assert_eq!(local.source(), Source::Local);
    assert_eq!(plain.source(), Source::Store);
    assert_eq!(reported(local), reported(plain));
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

async fn ask_for(limiter: &Limiter, which: u64, key: &'static str, units: u64) -> Answered {
    match which {
        0 => limiter.check(key).await,
        1 | 2 => limiter.check_n(key, units).await,
        3 => limiter.take_up_to(key, units).await,
        4 => limiter.debit(key, units).await,
        5 => limiter.peek(key).await,
        _ => limiter
            .credit(key, units)
            .await
            .map(|refund| refund.decision().clone()),
    }
}

type Answered = Result<Decision, StoreError>;

fn build(store: impl Store, quotas: &[Quota]) -> Limiter {
    let all = quotas.iter().enumerate();
    let builder = all.fold(
        Limiter::builder().store(store),
        |builder, (number, quota)| {
            let policy = Policy::new(format!("policy {number}"), *quota);
            // A constant cost must fit.
            builder.policy(policy.cost(quota.capacity().min(2)))
        },
    );
    builder.build().unwrap()
}

/// Returns a step of time: tenths of the time of a unit, a few of them, or very many.
fn step(random: &mut Random, quotas: &[Quota]) -> Duration {
    let quota = quotas[random.below(quotas.len() as u64) as usize];
    let us = quota.period().as_micros() / u128::from(quota.limit().max(1));
    let us = u64::try_from(us).unwrap().min(1 << 43);
    Duration::from_micros(match random.below(4) {
        0 => random.below(3),
        1 => us,
        2 => random.bits_up_to(3 * us),
        _ => random.bits_up_to(2_000 * us),
    })
}

fn walk(random: &mut Random, quotas: &[Quota], steps: usize) {
    let clock = Arc::new(ManualClock::new());
    let store = Switch::down(&clock);
    let plain = MemoryStore::builder().clock(clock.clone()).build();
    let (local, plain) = (build(store.clone(), quotas), build(plain, quotas));
    for _ in 0..steps {
        store.now(match random.below(2) {
            0 => unavailable(),
            _ => unavailable_later(),
        });
        let key = random.one_of(&["ann", "bob", ""]);
        let units = cost(random, quotas);
        match random.below(12) {
            6 => {
                let error = finish(ask_for(&local, 6, key, units)).unwrap_err();
                assert!(error.is_unavailable(), "{error}");
            }
            7 => {
                assert!(finish(local.reset(key)).unwrap_err().is_unavailable());
                finish(plain.reset(key)).unwrap();
            }
            8.. => clock.advance(step(random, quotas)),
            which => {
                let local = finish(ask_for(&local, which, key, units)).unwrap();
                let plain = finish(ask_for(&plain, which, key, units)).unwrap();
                assert_same(&local, &plain);
            }
        }
    }
    assert_eq!(store.memory().len(), 0, "the store was charged");
}

#[test]
fn every_algorithm_decides_in_this_process_as_in_a_store() {
    let mut random = Random::new();
    for algorithm in 0..ALGORITHMS {
        for _ in 0..60 {
            let quota = quota_of(algorithm, &mut random);
            walk(&mut random, &[quota], 150);
        }
    }
}

#[test]
fn several_policies_decide_together_as_in_a_store() {
    let mut random = Random::new();
    for _ in 0..300 {
        let count = random.between(2, 4);
        let quotas: Vec<_> = (0..count).map(|_| quota(&mut random)).collect();
        walk(&mut random, &quotas, 150);
    }
}

/// Permits come and go beside another policy, with lifetimes that end.
#[test]
fn permits_are_held_in_this_process_as_in_a_store() {
    let mut random = Random::new();
    for round in 0..300 {
        let clock = Arc::new(ManualClock::new());
        let store = Switch::down(&clock);
        let plain = MemoryStore::builder().clock(clock.clone()).build();
        let mut quotas = vec![concurrency(&mut random)];
        if round % 2 == 0 {
            quotas.push(quota(&mut random));
        }
        let (local, plain) = (build(store.clone(), &quotas), build(plain, &quotas));
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
            let decision = finish(local.peek(key)).unwrap();
            let policy = decision.policies().next().unwrap();
            assert_eq!(policy.remaining(), quotas[0].capacity(), "permits leaked");
        }
        assert_eq!(store.memory().len(), 0, "the store was charged");
    }
}

#[test]
fn a_layer_answers_in_an_outage_as_on_a_store() {
    let mut random = Random::new();
    let modes = [
        HeaderFormat::Draft10,
        HeaderFormat::Draft7,
        HeaderFormat::XRateLimitEpoch,
    ];
    for round in 0..60 {
        let clock = Arc::new(ManualClock::new());
        let store = Switch::down(&clock);
        let plain = MemoryStore::builder().clock(clock.clone()).build();
        let mode = modes[round % modes.len()];
        let layer = |store: Arc<dyn Store>| {
            let builder = RateLimitLayer::builder()
                .decision_in_extensions()
                .headers(mode)
                .store(store);
            let builder = builder.policy(api()).policy(day());
            let builder = match mode {
                HeaderFormat::Draft10 => builder.partition_key_secret(b"secret"),
                _ => builder,
            };
            builder.build().unwrap()
        };
        let (local, plain) = (layer(Arc::new(store.clone())), layer(Arc::new(plain)));
        for _ in 0..100 {
            let costs = [
                ("api", random.bits_up_to(120)),
                ("day", random.bits_up_to(5_500)),
            ];
            let (local, plain) = (ask(&local, get(costs)), ask(&plain, get(costs)));
            assert_eq!(local.status, plain.status);
            assert_eq!((local.headers, local.body), (plain.headers, plain.body));
            assert_same(&local.decision.unwrap(), &plain.decision.unwrap());
            clock.advance(Duration::from_micros(random.bits_up_to(20_000_000)));
        }
    }
}
