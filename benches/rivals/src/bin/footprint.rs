//! What callers and requests cost in memory: bytes for each caller, in this process and in
//! Redis, and allocations for each request. Prints rows of the table. It is a program of its
//! own, because counting slows everything down.

use std::alloc::System;

use axum::http::StatusCode;
use governor::RateLimiter;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Builder;
use tower::{Layer, layer::util::Identity};
use tower_governor::key_extractor::PeerIpKeyExtractor;
use tower_throttle::{Limiter, MemoryStore};
use tower_throttle_rivals::{
    ask::{Ask, RedisCell, TwoKeys},
    callers::{MANY, address, api_key},
    cargo,
    on_redis::Stage,
    on_threads::{at_once, call},
    peers::{Ours, Rate, axum_governor, in_memory, inner, tower_governor, trl_fred},
    table::Row,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of callers whose allocations are counted, after others have come.
const COUNTED: usize = 10_000;

fn main() {
    bytes_in_memory();
    bytes_in_redis();
    allocations_in_memory();
    allocations_on_redis();
}

fn bytes_in_memory() {
    let limiter = Limiter::new(MemoryStore::new(), Rate::Once.in_memory());
    let ours = bytes(|caller| {
        let decision = at_once(limiter.check(api_key(caller))).expect("a decision");
        assert!(decision.is_allowed());
    });
    let limiter = RateLimiter::dashmap(Rate::Once.governor());
    let governor = bytes(|caller| assert!(limiter.check_key(&api_key(caller)).is_ok()));
    let name = "memory: bytes per caller, bare, keyed by a string of 16";
    println!("{}", Row::cost(name, "", ours, ("governor", governor)));

    let ours = in_memory(Rate::Once, 1).layer(inner());
    let tower = tower_governor(PeerIpKeyExtractor, Rate::Once).layer(inner());
    let axum = axum_governor(axum_governor::PeerIp::default(), Rate::Once).layer(inner());
    let ours = bytes(|caller| drop(call(&ours, address(caller))));
    let tower = bytes(|caller| drop(call(&tower, address(caller))));
    let axum = bytes(|caller| drop(call(&axum, address(caller))));
    let name = "memory: bytes per caller, layer, keyed by address";
    println!("{}", Row::cost(name, "", ours, ("tower_governor", tower)));
    println!("{}", Row::cost(name, "", ours, ("axum-governor", axum)));
}

/// Each caller comes once.
fn bytes(ask: impl Fn(usize)) -> f64 {
    let region = Region::new(ALLOCATOR);
    (0..MANY).for_each(ask);
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) as f64 / MANY as f64
}

fn bytes_in_redis() {
    let module = cargo::redis_cell();
    let stage = Stage::new(module.as_deref());
    let client = stage.client();
    // An hour is long enough for nothing to come back during the run, because a bucket that is
    // full again is forgotten.
    let bucket = Rate::Once.bucket();
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Once)));
    let rival = stage.allowed(trl_fred(client.clone(), Rate::Once));
    let two_keys = stage.run(TwoKeys::new(client.clone(), bucket));
    let cell = RedisCell { client, bucket };

    let ours = bytes_of_each(&stage, 1, &ours);
    let rival = bytes_of_each(&stage, 1, &rival);
    let two_keys = bytes_of_each(&stage, 2, &two_keys);
    let name = "Redis: bytes per caller";
    println!("{}", Row::cost(name, "", ours, ("trl-fred", rival)));
    println!(
        "{}",
        Row::cost(name, "", ours, ("two keys, as in Spring", two_keys))
    );
    if module.is_some() {
        let cell = bytes_of_each(&stage, 1, &cell);
        println!("{}", Row::cost(name, "", ours, ("redis-cell", cell)));
    }
}

fn bytes_of_each(stage: &Stage, keys: usize, ask: &impl Ask) -> f64 {
    // Buffers and scripts exist before the measurement.
    stage.each(256, 0..MANY, ask);
    stage.server.forget_all();
    let before = stage.server.settled_bytes();
    stage.each(256, 0..MANY, ask);
    let after = stage.server.settled_bytes();
    assert_eq!(stage.server.keys(), (keys * MANY) as u64, "none has gone");
    (after - before) / MANY as f64
}

/// Counts those beyond what a request needs without a layer.
fn allocations_in_memory() {
    let none = inner();
    for (what, rate, status) in [
        ("allowed", Rate::Ample, StatusCode::OK),
        ("denied", Rate::Once, StatusCode::TOO_MANY_REQUESTS),
    ] {
        let ours = in_memory(rate, 1).layer(none);
        let tower = tower_governor(PeerIpKeyExtractor, rate).layer(none);
        let axum = axum_governor(axum_governor::PeerIp::default(), rate).layer(none);
        macro_rules! more {
            ($service:expr) => {{
                (0..COUNTED).for_each(|at| drop(call(&$service, address(at))));
                let with = allocations(|| {
                    for at in 0..COUNTED {
                        assert_eq!(call(&$service, address(at)).status(), status);
                    }
                });
                let without = allocations(|| {
                    (0..COUNTED).for_each(|at| drop(call(&none, address(at))));
                });
                with - without
            }};
        }
        let (ours, tower, axum) = (more!(ours), more!(tower), more!(axum));
        let name = format!("memory: allocations per request, {what}");
        println!("{}", Row::cost(&name, "", ours, ("tower_governor", tower)));
        println!("{}", Row::cost(&name, "", ours, ("axum-governor", axum)));
    }
}

fn allocations_on_redis() {
    // Includes those of the client's tasks.
    let stage = Stage::on(&mut Builder::new_current_thread(), None);
    let none = stage.allowed(Identity::new());
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    let rival = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    for in_flight in [1, 256] {
        macro_rules! count {
            ($requests:expr) => {{
                stage.each(in_flight, COUNTED..2 * COUNTED, &$requests);
                allocations(|| stage.each(in_flight, 0..COUNTED, &$requests))
            }};
        }
        let (none, ours, rival) = (count!(none), count!(ours), count!(rival));
        let name = format!("Redis: allocations per request, {in_flight} in flight");
        let beside = ("trl-fred, 1 client", rival - none);
        println!("{}", Row::cost(name, "", ours - none, beside));
    }
}

/// Returns the allocations for each of the counted callers.
fn allocations(come: impl FnOnce()) -> f64 {
    let region = Region::new(ALLOCATOR);
    come();
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / COUNTED as f64
}
