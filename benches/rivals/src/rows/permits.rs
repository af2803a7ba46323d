//! What permits cost the Redis server, by how many are held under one key.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use tower_throttle::{Concurrency, Limiter, OnStoreFailure, Permit, Policy, RedisStore};

use crate::{
    measured::{ROUND, ROUNDS},
    on_redis::Stage,
    table::{Row, Table},
};

const HELD: [usize; 3] = [10, 1_000, 10_000];
const LIFETIME: Duration = Duration::from_secs(6);

pub fn rows(table: &mut Table) {
    let costs = HELD.map(Costs::measure);
    let [few, ..] = costs;
    for (held, cost) in HELD.into_iter().zip(costs) {
        let mut add = |work: &str, unit: &str, of: fn(Costs) -> f64| {
            let name = format!("permits: CPU time of the server for {work}, {held} held");
            table.add(Row::cost(name, unit, of(cost), ("10 held", of(few))));
        };
        add("a permit that comes and goes", " µs", |costs| {
            costs.taken_us
        });
        add("a check that is refused", " µs", |costs| costs.refused_us);
        add("the renewals of 6 s", " µs", |costs| costs.renewed_us);
    }
}

#[derive(Clone, Copy)]
struct Costs {
    taken_us: f64,
    refused_us: f64,
    renewed_us: f64,
}

impl Costs {
    fn measure(held: usize) -> Self {
        let stage = Stage::new(None);
        let limit = |limit: usize| {
            let store = RedisStore::builder().timeout(Duration::from_secs(20));
            let store = stage.run(async { store.connect(&stage.server.url()) });
            let policy = Policy::new("held", Concurrency::new(limit as u64).lifetime(LIFETIME));
            let policy = policy.on_store_failure(OnStoreFailure::Deny);
            Limiter::new(store.expect("a store"), policy)
        };
        let free = limit(held + 1);
        let full = limit(held);
        let permits: Vec<Permit> = (0..held).map(|_| acquire(&stage, &free, true)).collect();
        // Those of this round are renewed, too: a round has few of them.
        let renewed_us = median(|| {
            let before = stage.server.used().cpu_us;
            sleep(LIFETIME);
            stage.server.used().cpu_us - before
        });
        let taken_us = per_call(&stage, || drop(acquire(&stage, &free, true)));
        let refused_us = per_call(&stage, || drop(acquire(&stage, &full, false)));
        drop(permits);
        Self {
            taken_us,
            refused_us,
            renewed_us,
        }
    }
}

fn acquire(stage: &Stage, limiter: &Limiter, is_allowed: bool) -> Permit {
    let permit = stage.run(limiter.acquire("ann", Duration::ZERO));
    let permit = permit.expect("a decision");
    assert_eq!(permit.is_allowed(), is_allowed);
    permit
}

fn per_call(stage: &Stage, ask: impl Fn()) -> f64 {
    median(|| {
        let (before, started, mut calls) = (stage.server.used().cpu_us, Instant::now(), 0);
        while started.elapsed() < ROUND {
            ask();
            calls += 1;
        }
        (stage.server.used().cpu_us - before) / f64::from(calls)
    })
}

fn median(mut round: impl FnMut() -> f64) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
