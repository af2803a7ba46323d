//! Random walks of each algorithm by itself, and of all together.

use std::time::Instant;

use super::{
    bench::Bench,
    walk::{Counts, Walk},
};
use crate::support::{
    plans::{Algorithm, USED_UP},
    random::{Random, seed, walks},
};

fn walk(settings: u64, steps: u64, algorithms: impl Fn(&mut Random) -> Vec<Algorithm>) {
    let (seed, bench, started) = (seed(), Bench::new(), Instant::now());
    let mut random = Random::from_seed(seed);
    let mut total = Counts::default();
    for setting in 0..walks(settings) {
        let algorithms = algorithms(&mut random);
        let mut walk = Walk::new(&bench, seed, setting, &algorithms);
        bench.runtime.block_on(async {
            walk.learn_phases().await;
            while walk.counts.steps < steps {
                walk.step().await;
            }
        });
        total.steps += walk.counts.steps;
        total.denied += walk.counts.denied;
        total.waits += walk.counts.waits;
        total.ambiguous += walk.counts.ambiguous;
        if setting % 20 == 0 {
            bench.server.assert_all_keys_expire();
            bench.server.command(&["FLUSHALL"]);
        }
    }
    println!("{total:?} in {:?}", started.elapsed());
}

fn walk_of(algorithm: Algorithm) {
    walk(100, 1_000, |_| vec![algorithm]);
}

#[test]
fn token_bucket() {
    walk_of(Algorithm::Token);
}

#[test]
fn token_bucket_refilled_at_once_or_never() {
    walk_of(Algorithm::Interval);
}

#[test]
fn leaky_bucket() {
    walk_of(Algorithm::Leaky);
}

#[test]
fn fixed_window() {
    walk_of(Algorithm::Fixed);
}

#[test]
fn sliding_window() {
    walk_of(Algorithm::Sliding);
}

#[test]
fn sliding_log() {
    walk_of(Algorithm::Log);
}

#[test]
fn penalty() {
    walk_of(Algorithm::Penalty);
}

/// Other policies deny, and most denials are strikes.
#[test]
fn penalties_beside_other_policies() {
    walk(75, 600, |random| {
        let others = random.between(1, 2);
        let others = (0..others).map(|_| random.one_of(&USED_UP));
        let mut algorithms: Vec<_> = others.collect();
        let place = random.below(algorithms.len() as u64 + 1) as usize;
        algorithms.insert(place, Algorithm::Penalty);
        if random.percent(20) {
            algorithms.push(Algorithm::Penalty);
        }
        algorithms
    });
}

#[test]
fn stacked_policies() {
    walk(75, 400, |random| {
        let policies = random.between(2, 4);
        (0..policies).map(|_| random.one_of(&USED_UP)).collect()
    });
}
