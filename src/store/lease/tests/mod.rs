//! Random walks, and single steps, of processes that lease from one bucket.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod resets;
mod world;

use proptest::prelude::*;

use self::world::{Fate, LONGEST_TRIP_US, World};
use super::entry::LIFE_US;
use crate::{Key, OnStoreFailure, Policy, Source, TokenBucket};

/// Checks that a process makes, and the time that passes after them.
#[derive(Clone, Copy, Debug)]
struct Step {
    process: usize,
    cost: u64,
    times: u64,
    /// How long a round trip takes that these checks start.
    trip_us: u64,
    fate: Fate,
    pause_us: u64,
}

const PROCESSES: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fate = prop_oneof![
        8 => Just(Fate::Arrives),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::ReplyLost),
    ];
    let step = (
        0..PROCESSES,
        1..4_u64,
        prop_oneof![1..20_u64, 20..500_u64],
        prop_oneof![0..500_u64, 0..LONGEST_TRIP_US],
        fate,
        prop_oneof![3 => Just(0), 1 => 0..1_000_u64, 1 => 0..60_000_u64, 1 => 0..900_000_u64],
    );
    let step = step.prop_map(|(process, cost, times, trip_us, fate, pause_us)| Step {
        process,
        cost,
        times,
        trip_us,
        fate,
        pause_us,
    });
    prop::collection::vec(step, 1..40)
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    let rate = prop_oneof![1..100_u64, 100..10_000_u64, 10_000..1_000_000_u64];
    let burst = prop_oneof![1..200_u64, 200..5_000_u64, 5_000..200_000_u64];
    (rate, burst)
}

fn walk(world: &mut World, steps: &[Step]) {
    for step in steps {
        for _ in 0..step.times {
            let _ = world.ask(step.process, step.cost, step.trip_us, step.fate);
        }
        world.pass(step.pause_us);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In any span of time, at most the bucket and the stated bound are admitted.
    #[test]
    fn no_more_is_admitted_than_the_bucket_and_the_stated_burst(
        (rate, burst) in quotas(),
        steps in steps(),
    ) {
        let mut world = World::new(TokenBucket::per_second(rate).burst(burst), PROCESSES);
        walk(&mut world, &steps);
        let quota = *world.policy.demand.quota;
        let held_ns = quota.level_of(PROCESSES as u64 * (burst / 8));
        let most_ns = quota.level_of_capacity() + held_ns.min(1_000_000_000);
        // Clocks tick in microseconds.
        prop_assert!(world.highest_ns <= most_ns + 1_000, "{} > {most_ns}", world.highest_ns);
    }

    /// Without refill, no unit can come back while it is held.
    #[test]
    fn a_bucket_without_refill_gives_exactly_what_it_holds(
        burst in 1..5_000_u64,
        mut steps in steps(),
    ) {
        let mut world = World::new(TokenBucket::without_refill(burst), PROCESSES);
        for step in &mut steps {
            (step.cost, step.fate) = (1, Fate::Arrives);
        }
        walk(&mut world, &steps);
        prop_assert!(world.admitted <= burst);
        world.pass(1_000_000);
        prop_assert_eq!(world.left_on_the_server(), burst - world.admitted);
        while world.ask(0, 1, 0, Fate::Arrives).is_allowed() {}
        world.pass(1_000_000);
        while world.ask(1, 1, 0, Fate::Arrives).is_allowed() {}
        prop_assert_eq!(world.admitted, burst);
    }
}

/// Makes `per_ms` checks in each of `ms` milliseconds.
fn press(world: &mut World, per_ms: u64, ms: u64) {
    for _ in 0..ms {
        for _ in 0..per_ms {
            let _ = world.ask(0, 1, 200, Fate::Arrives);
        }
        world.pass(1_000);
    }
}

/// Uses units for 20 ms, keeps the lease in use, and then takes all there is. Returns what was
/// admitted beyond the burst, as the time in which it flows in.
fn extra_ns(world: &mut World, per_ms: u64, awake_ms: u64) -> u64 {
    press(world, per_ms, 20);
    for _ in 0..awake_ms / 90 {
        let _ = world.ask(0, 1, 200, Fate::Arrives);
        world.pass(90_000);
    }
    while world.ask(0, 1, 200, Fate::Arrives).is_allowed() {}
    let capacity_ns = world.policy.demand.quota.level_of_capacity();
    world.highest_ns.saturating_sub(capacity_ns)
}

#[test]
fn the_extra_burst_exists_and_is_as_large_as_stated() {
    let bucket = TokenBucket::per_second(1_000).burst(100_000);
    // The bucket is full again while its units are still held.
    let extra = extra_ns(&mut World::new(bucket, 1), 10, 630);
    assert!((100_000_000..=1_000_000_000).contains(&extra), "{extra}");
    // No unit is held for so long that it could be more.
    let extra = extra_ns(&mut World::new(bucket, 1), 150, 10_000);
    assert!(extra <= 1_000_000_000, "{extra}");
}

#[test]
fn a_decision_from_a_lease_reports_what_the_server_and_the_lease_have_left() {
    let mut world = World::new(TokenBucket::without_refill(100_000), 1);
    let mut from_leases = 0;
    for _ in 0..20 {
        for _ in 0..100 {
            let decision = world.ask(0, 1, 0, Fate::Arrives);
            let remaining = decision.policies().next().map(|policy| policy.remaining());
            if decision.source() == Source::Lease {
                assert_eq!(remaining, Some(100_000 - world.admitted), "{decision:?}");
            }
            assert!(decision.delay().is_zero());
            from_leases += u64::from(decision.source() == Source::Lease);
            world.pass(0);
        }
        world.pass(1_000);
    }
    assert!(from_leases > 1_000, "{from_leases}");
}

#[test]
fn a_lease_is_not_used_before_or_after_its_time() {
    let warm = || {
        let mut world = World::new(TokenBucket::without_refill(100_000), 1);
        press(&mut world, 100, 20);
        let decision = world.ask(0, 1, 200, Fate::Arrives);
        assert_eq!(decision.source(), Source::Lease);
        world
    };
    // Without a sweep, the next check notices old units.
    for (step_us, is_back) in [(LIFE_US, false), (3_600_000_000, false), (1_000_000, true)] {
        let mut world = warm();
        world.next_sweep_us = u64::MAX;
        world.in_flight.clear();
        let now_us = world.now_us();
        world.clock.set_us(if is_back {
            now_us - step_us
        } else {
            now_us + step_us
        });
        world.taken_at_us = world.now_us();
        let decision = world.ask(0, 1, 0, Fate::Arrives);
        assert_eq!(
            decision.source(),
            Source::Store,
            "a step of {step_us} µs, back: {is_back}"
        );
        assert_eq!(world.left_on_the_server(), 100_000 - world.admitted);
    }
}

#[test]
fn units_of_an_idle_caller_are_refunded_and_the_caller_is_forgotten() {
    let mut world = World::new(TokenBucket::without_refill(100_000), 1);
    press(&mut world, 100, 20);
    assert!(world.left_on_the_server() < 100_000 - world.admitted);
    world.pass(150_000 + LONGEST_TRIP_US);
    assert_eq!(world.left_on_the_server(), 100_000 - world.admitted);
    world.pass(200_000);
    assert!(world.processes[0].sweep().is_none());
}

#[test]
fn a_flood_of_callers_takes_bounded_room_and_ends_no_lease() {
    let mut world = World::new(TokenBucket::per_second(1_000_000), 1);
    press(&mut world, 100, 20);
    for caller in 0..100_000 {
        world.key = Key::from(format!("caller-{caller}"));
        let _ = world.ask(0, 1, 0, Fate::Arrives);
    }
    assert!(world.processes[0].len() <= 4_096);
    world.key = Key::from("ann");
    assert_eq!(world.ask(0, 1, 0, Fate::Arrives).source(), Source::Lease);
}

#[test]
fn a_lease_of_a_quota_with_other_numbers_is_refunded() {
    let mut world = World::new(TokenBucket::per_minute(1).burst(100_000), 1);
    press(&mut world, 100, 20);
    let other = Policy::new("hot", TokenBucket::per_minute(2).burst(100_000));
    let own = std::mem::replace(
        &mut world.policy,
        other.compile(OnStoreFailure::Deny).expect("a policy"),
    );
    assert_eq!(world.ask(0, 1, 0, Fate::Arrives).source(), Source::Store);
    world.policy = own;
    world.pass(1_000_000);
    // A unit of the other quota is half as large a level.
    assert_eq!(world.left_on_the_server(), 100_000 - world.admitted);
}
