//! Permits in flight: taken, kept in a list, and dropped at random.

use std::time::Instant;

use super::{
    bench::Bench,
    walk::{Event, Walk, together},
};
use crate::support::prelude::*;
use crate::support::{
    oracle::{Fields, Op, Plan},
    plans::Algorithm,
    random::{seed, walks},
};

struct Held {
    caller: u64,
    number: u64,
    plan: Plan,
    redis: Permit,
    memory: Option<Permit>,
}

#[test]
fn concurrency() {
    let (seed, bench, started) = (seed(), Bench::new(), Instant::now());
    let (mut steps, mut admitted) = (0, 0);
    for setting in 0..walks(100) {
        let mut walk = Walk::new(&bench, seed, setting, &[Algorithm::Concurrency]);
        bench.runtime.block_on(async {
            let mut held = Vec::new();
            while walk.counts.steps < 1_000 {
                step(&mut walk, &mut held).await;
                admitted += u64::from(held.len() as u64 > 0);
            }
        });
        steps += walk.counts.steps;
        if setting % 20 == 0 {
            bench.server.assert_all_keys_expire();
            bench.server.command(&["FLUSHALL"]);
        }
    }
    println!(
        "concurrency: {steps} steps, {admitted} with permits in flight, in {:?}",
        started.elapsed()
    );
}

/// Lets each caller do something at one instant.
async fn step(walk: &mut Walk<'_>, held: &mut Vec<Held>) {
    walk.move_clock().await;
    if walk.random.percent(15) {
        walk.any_variant();
    }
    if walk.random.percent(7) {
        walk.forget_drained();
    }
    let (mut released, mut peeks, mut acquires) = (Vec::new(), Vec::new(), Vec::new());
    for caller in walk.callers() {
        let of_caller = held.iter().enumerate();
        let of_caller = of_caller.filter(|(_, held)| held.caller == caller);
        let places: Vec<usize> = of_caller.map(|(place, _)| place).collect();
        match walk.random.below(39) {
            0 => walk.reset(caller).await,
            1..7 => peeks.push((caller, Op::Peek)),
            7..21 if !places.is_empty() => {
                let place = walk.random.one_of(&places);
                release(walk, held.swap_remove(place));
                released.push(caller);
            }
            _ => acquires.push((caller, any_units(walk))),
        }
    }
    await_releases(walk, &released).await;
    acquire(walk, held, &acquires).await;
    for shown in walk.ask_all(&peeks).await {
        walk.remember_moments(&shown);
    }
}

/// Returns no units, a few, about the limit, or the largest number; `None`: own costs.
fn any_units(walk: &mut Walk<'_>) -> Option<u64> {
    let limit = walk.plans()[0].spec.capacity();
    match walk.random.below(10) {
        0..5 => None,
        5..8 => Some(walk.random.below(4)),
        8 => Some(walk.random.below(limit + 3)),
        _ => Some(u64::MAX),
    }
}

async fn acquire(walk: &mut Walk<'_>, held: &mut Vec<Held>, asked: &[(u64, Option<u64>)]) {
    let plans = walk.plans();
    let mut expected = Vec::new();
    for &(caller, units) in asked {
        walk.counts.steps += 1;
        let (number, now_us) = (walk.counts.steps, walk.now_us);
        let op = Op::Acquire { units, number };
        walk.note(Event::Asks { caller, op });
        expected.push((number, walk.oracle.decide(&plans, caller, op, now_us)));
    }
    let variant = walk.variant();
    let redis = asked
        .iter()
        .map(|&(caller, units)| acquired(&variant.redis, caller, units));
    let redis = together(redis).await;
    let decision = |permit: &Result<Permit, StoreError>| match permit {
        Ok(permit) => Ok(permit.decision().clone()),
        Err(error) => Err(error.clone()),
    };
    for ((&(caller, units), (number, expected)), redis) in asked.iter().zip(expected).zip(redis) {
        let memory = match &walk.variant().memory {
            Some(memory) => Some(acquired(memory, caller, units).await),
            None => None,
        };
        walk.compare(decision(&redis), &expected, "Redis");
        if let Some(memory) = &memory {
            walk.compare(decision(memory), &expected, "memory");
        }
        walk.remember_moments(&expected);
        if expected.verdict == Verdict::Allowed {
            held.push(Held {
                caller,
                number,
                plan: plans[0],
                redis: redis.expect("a permit"),
                memory: memory.map(|permit| permit.expect("a permit")),
            });
        }
    }
}

async fn acquired(
    limiter: &Limiter,
    caller: u64,
    units: Option<u64>,
) -> Result<Permit, StoreError> {
    match units {
        None => limiter.acquire(caller, Duration::ZERO).await,
        Some(units) => limiter.acquire_n(caller, units, Duration::ZERO).await,
    }
}

fn release(walk: &mut Walk<'_>, held: Held) {
    let (caller, number, now_us) = (held.caller, held.number, walk.now_us);
    walk.counts.steps += 1;
    walk.note(Event::Releases { caller, number });
    walk.oracle.release(&held.plan, caller, number, now_us);
    drop((held.redis, held.memory));
}

/// Waits until each store shows what these callers have released.
async fn await_releases(walk: &mut Walk<'_>, callers: &[u64]) {
    let (plans, now_us) = (walk.plans(), walk.now_us);
    let mut expected = Vec::new();
    for &caller in callers {
        let peek = walk.oracle.decide(&plans, caller, Op::Peek, now_us);
        expected.push((caller, peek));
    }
    // A task of its own sends the statement to Redis, mostly before the peek.
    tokio::task::yield_now().await;
    let started = Instant::now();
    let mut unseen = expected.clone();
    while !unseen.is_empty() {
        let redis = &walk.variant().redis;
        let peeks = unseen.iter().map(|(caller, _)| redis.peek(*caller));
        let peeks = together(peeks).await;
        let is_late = started.elapsed() > DEADLINE;
        let mut answers = peeks.into_iter();
        unseen.retain(
            |(_, expected)| match answers.next().expect("one for each") {
                Ok(decision) if Fields::from(&decision) != *expected && !is_late => true,
                answer => {
                    walk.compare(answer, expected, "Redis");
                    false
                }
            },
        );
    }
    if let Some(memory) = &walk.variant().memory {
        for (caller, expected) in &expected {
            walk.compare(memory.peek(*caller).await, expected, "memory");
        }
    }
    walk.counts.steps += expected.len() as u64;
}
