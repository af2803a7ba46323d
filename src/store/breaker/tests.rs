#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;

use super::*;

/// A state machine, the time, and the calls in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    machine: StateMachine,
    now_ms: u64,
    calls: Vec<(u64, bool)>,
}

impl World {
    fn new() -> Self {
        Self {
            machine: StateMachine::new(),
            now_ms: 0,
            calls: Vec::new(),
        }
    }

    fn probes(&self) -> usize {
        let generation = self.machine.generation;
        let calls = self.calls.iter();
        calls
            .filter(|(of, is_probe)| *is_probe && *of == generation)
            .count()
    }

    /// Returns the worlds after each event that may come next.
    fn next(&self) -> Vec<Self> {
        let mut worlds = Vec::new();
        let mut then = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            worlds.push(world);
        };
        for ms in [10, 60, 300, 1_300] {
            then(&|world| world.now_ms += ms);
        }
        if self.calls.len() < 3 {
            then(&|world| world.ask());
        }
        for place in 0..self.calls.len() {
            for outcome in [
                CallOutcome::Answered,
                CallOutcome::Failed,
                CallOutcome::NotSent,
                CallOutcome::Unused,
            ] {
                then(&|world| {
                    let (generation, _) = world.calls.remove(place);
                    world
                        .machine
                        .record_outcome(generation, outcome, world.now_ms, 7);
                });
            }
        }
        worlds
    }

    fn ask(&mut self) {
        let was_open = self.machine.is_open(self.now_ms);
        let generation = self.machine.try_acquire(self.now_ms);
        assert_eq!(generation.is_none(), was_open, "{self:?}");
        if let Some(generation) = generation {
            let is_probe = matches!(self.machine.state, State::Probing { .. });
            self.calls.push((generation, is_probe));
        }
    }

    /// Asserts that the breaker closes within the longest pause once the server answers
    /// again, if a call comes and those in flight end.
    fn assert_recovers(mut self) {
        for (generation, _) in std::mem::take(&mut self.calls) {
            self.machine
                .record_outcome(generation, CallOutcome::Failed, self.now_ms, u64::MAX);
        }
        self.now_ms += LONGEST_PAUSE_MS + LONGEST_PAUSE_MS / JITTER_PARTS;
        let generation = self.machine.try_acquire(self.now_ms).expect("a permit");
        self.machine
            .record_outcome(generation, CallOutcome::Answered, self.now_ms, 0);
        assert!(
            matches!(self.machine.state, State::Closed { .. }),
            "{self:?}"
        );
    }
}

#[test]
fn every_schedule_has_one_probe_at_most_and_recovers() {
    let mut seen = HashSet::new();
    let mut worlds = vec![World::new()];
    for _ in 0..10 {
        let mut next = Vec::new();
        for world in worlds {
            for world in world.next() {
                if seen.insert(world.clone()) {
                    assert!(world.probes() <= 1, "{world:?}");
                    assert_eq!(
                        matches!(world.machine.state, State::Probing { .. }),
                        world.probes() == 1,
                        "a probe is under way, or none: {world:?}"
                    );
                    world.clone().assert_recovers();
                    next.push(world);
                }
            }
        }
        worlds = next;
    }
    assert!(seen.len() > 10_000, "{} states", seen.len());
}

/// Returns the calls that reach a server within `ms`, from one caller that asks each
/// millisecond and waits `takes_ms` for each outcome, and the instants at which they end.
fn calls_in(ms: u64, takes_ms: u64, outcome: CallOutcome) -> (u64, Vec<u64>) {
    let (mut machine, mut calls, mut at) = (StateMachine::new(), 0, Vec::new());
    let mut now_ms = 0;
    while now_ms < ms {
        match machine.try_acquire(now_ms) {
            Some(generation) => {
                (calls, now_ms) = (calls + 1, now_ms + takes_ms);
                at.push(now_ms);
                machine.record_outcome(generation, outcome, now_ms, calls * 7_919);
            }
            None => now_ms += 1,
        }
    }
    (calls, at)
}

#[test]
fn a_server_that_never_answers_is_probed_once_a_second() {
    let (_, at) = calls_in(60_000, 50, CallOutcome::Failed);
    assert!(at[4] <= 300, "open after 300 ms: {at:?}");
    let late: Vec<_> = at.iter().filter(|at| **at > 5_000).collect();
    for pair in late.windows(2) {
        let pause = pair[1] - pair[0];
        assert!((1_000..=1_300).contains(&pause), "{pause} ms");
    }
    let first_second = at.iter().filter(|at| **at <= 1_250).count();
    assert!(first_second <= 5 + 4, "{at:?}");
}

#[test]
fn a_lost_connection_is_probed_again_soon() {
    let (calls, _) = calls_in(10_000, 0, CallOutcome::NotSent);
    assert!((150..=205).contains(&calls), "{calls}");
}

#[test]
fn outcomes_of_unsent_calls_do_not_affect_the_breaker() {
    let mut machine = StateMachine::new();
    for outcome in [CallOutcome::Unused, CallOutcome::Failed].repeat(4) {
        let generation = machine.try_acquire(0).expect("closed");
        machine.record_outcome(generation, outcome, 0, 0);
    }
    let generation = machine.try_acquire(0).expect("closed after four failures");
    machine.record_outcome(generation, CallOutcome::Failed, 0, 0);
    assert_eq!(machine.try_acquire(49), None);
    for _ in 0..100 {
        let generation = machine.try_acquire(50).expect("a probe");
        assert_eq!(machine.try_acquire(50), None, "one at a time");
        machine.record_outcome(generation, CallOutcome::Unused, 50, 0);
    }
    let generation = machine.try_acquire(50).expect("a probe");
    machine.record_outcome(generation, CallOutcome::Failed, 50, 0);
    assert_eq!(machine.try_acquire(149), None, "the pause is twice as long");
}
