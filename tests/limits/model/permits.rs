//! Permits in flight: taken, kept in a list, and dropped at random.

use std::time::{Duration, Instant};

use tower_throttle::{Decision, Limiter, Permit, StoreError, Verdict};

use super::{
    bench::Bench,
    walk::{Event, Walk},
};
use crate::support::{
    DEADLINE,
    oracle::{Fields, Op, Plan},
    plans::Algorithm,
    random::seed,
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
    for setting in 0..200 {
        let mut walk = Walk::new(&bench, seed, setting, &[Algorithm::Concurrency]);
        bench.runtime.block_on(async {
            let mut held = Vec::new();
            while walk.counts.steps < 500 {
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

async fn step(walk: &mut Walk<'_>, held: &mut Vec<Held>) {
    walk.move_clock().await;
    if walk.random.percent(5) {
        walk.any_variant();
    }
    let caller = walk.any_caller();
    match walk.random.below(40) {
        0 => walk.reset(caller).await,
        1 => walk.forget_drained(),
        2..8 => {
            let shown = walk.ask(caller, Op::Peek).await;
            walk.remember_moments(&shown);
        }
        8..22 if !held.is_empty() => {
            let place = walk.random.below(held.len() as u64) as usize;
            release(walk, held.swap_remove(place)).await;
        }
        _ => {
            let limit = walk.plans()[0].spec.capacity();
            let units = match walk.random.below(10) {
                0..5 => None,
                5..8 => Some(walk.random.below(4)),
                8 => Some(walk.random.below(limit + 3)),
                _ => Some(u64::MAX),
            };
            acquire(walk, held, caller, units).await;
        }
    }
}

async fn acquire(walk: &mut Walk<'_>, held: &mut Vec<Held>, caller: u64, units: Option<u64>) {
    walk.counts.steps += 1;
    let (plans, number, now_us) = (walk.plans(), walk.counts.steps, walk.now_us);
    let op = Op::Acquire { units, number };
    walk.note(Event::Asks { caller, op });
    let expected = walk.oracle.decide(&plans, caller, op, now_us);
    let variant = walk.variant();
    let redis = acquired(&variant.redis, caller, units).await;
    let memory = match &variant.memory {
        Some(memory) => Some(acquired(memory, caller, units).await),
        None => None,
    };
    let decision = |permit: &Result<Permit, StoreError>| match permit {
        Ok(permit) => Ok(permit.decision().clone()),
        Err(error) => Err(error.clone()),
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

async fn release(walk: &mut Walk<'_>, held: Held) {
    // The release, and a peek at what it leaves.
    walk.counts.steps += 2;
    let (caller, now_us, plans) = (held.caller, walk.now_us, walk.plans());
    let number = held.number;
    walk.note(Event::Releases { caller, number });
    walk.oracle.release(&held.plan, caller, number, now_us);
    drop((held.redis, held.memory));
    let expected = walk.oracle.decide(&plans, caller, Op::Peek, now_us);
    // A task of its own sends the statement to Redis, mostly before the peek.
    tokio::task::yield_now().await;
    let started = Instant::now();
    let answer = loop {
        let answer: Result<Decision, StoreError> = walk.variant().redis.peek(caller).await;
        let is_late = started.elapsed() > DEADLINE;
        match answer {
            Ok(decision) if Fields::from(&decision) != expected && !is_late => {}
            answer => break answer,
        }
    };
    walk.compare(answer, &expected, "Redis");
    if let Some(memory) = &walk.variant().memory {
        walk.compare(memory.peek(caller).await, &expected, "memory");
    }
}
