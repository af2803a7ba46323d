//! Processes that lease from one bucket, in virtual time. A memory store is the server, and
//! round trips arrive late or never.

use std::{borrow::Cow, mem, sync::Arc};

use tokio::runtime::{Builder, Runtime};

use super::super::{
    entry::RoundTrip,
    table::{Id, Leases},
};
use crate::{
    Decision, Key, ManualClock, MemoryStore, OnStoreFailure, Policy, StoreError, TokenBucket,
    charge::{Charge, Check, Demand, Operation},
    clock::Clock,
    error::StoreErrorKind,
    policy::Compiled,
    store::{Answer, Store, process::ProcessContext},
};

const SWEEP_EVERY_US: u64 = 50_000;
pub(super) const LONGEST_TRIP_US: u64 = 100_000;

/// What happens to a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Arrives,
    RequestLost,
    ReplyLost,
}

pub(super) struct InFlight {
    process: usize,
    id: Id,
    trip: RoundTrip,
    answer: Result<Decision, StoreError>,
    due_us: u64,
}

pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) server: MemoryStore,
    pub(super) policy: Compiled,
    pub(super) key: Key,
    pub(super) processes: Vec<Leases>,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) next_sweep_us: u64,
    pub(super) admitted: u64,
    /// The level of an exact bucket without a bound, and the instant of that level.
    taken_ns: u64,
    pub(super) taken_at_us: u64,
    pub(super) highest_ns: u64,
    _runtime: Runtime,
}

impl World {
    pub(super) fn new(bucket: TokenBucket, processes: usize) -> Self {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let clock = Arc::new(ManualClock::new());
        let policy = Policy::new("hot", bucket).lease();
        let leases = || {
            Leases::new(
                ProcessContext::new(Some(clock.clone())),
                runtime.handle().clone(),
            )
        };
        Self {
            server: MemoryStore::builder().clock(clock.clone()).build(),
            policy: policy.compile(OnStoreFailure::Deny).expect("a policy"),
            key: Key::from("ann"),
            processes: (0..processes).map(|_| leases()).collect(),
            in_flight: Vec::new(),
            next_sweep_us: clock.now_us() + SWEEP_EVERY_US,
            taken_at_us: clock.now_us(),
            clock,
            admitted: 0,
            taken_ns: 0,
            highest_ns: 0,
            _runtime: runtime,
        }
    }

    pub(super) fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            policy: self.policy.name.clone(),
            key: Cow::Borrowed(&self.key),
            demand: Cow::Owned(Demand::new(self.policy.demand.quota.clone(), cost)),
            on_store_failure: OnStoreFailure::Deny,
            leases: true,
        }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn server(&self, operation: Operation, charge: Charge<'_>) -> Result<Decision, StoreError> {
        match self.server.check(&Check::new(operation, &[charge])) {
            Answer::Now(answer) => answer,
            Answer::Later(_) => unreachable!("the memory store answers at once"),
        }
    }

    pub(super) fn left_on_the_server(&self) -> u64 {
        let peeked = self
            .server(Operation::Peek, self.charge(0))
            .expect("a decision");
        peeked.policies().next().expect("a policy").remaining()
    }

    /// Makes one check of a process, as [`LeasingStore`](super::super::LeasingStore) does.
    pub(super) fn ask(&mut self, process: usize, cost: u64, trip_us: u64, fate: Fate) -> Decision {
        let charge = self.charge(cost);
        let id = self.processes[process].process.id(&charge);
        let (grant, trip, _) = self.processes[process].look_up(id, &charge);
        if let Some(trip) = trip {
            self.send(process, id, *trip, trip_us, fate);
        }
        let granted = grant.map(|grant| grant.decision(&self.charge(cost)));
        let decision = granted.unwrap_or_else(|| {
            let answer = self.server(Operation::Take, self.charge(cost));
            self.processes[process].record_answer(id, cost, &answer);
            answer.expect("a decision")
        });
        if decision.is_allowed() {
            self.admitted += cost;
            self.count(cost);
        }
        decision
    }

    fn count(&mut self, cost: u64) {
        let now_us = self.now_us();
        let passed_ns = 1_000 * (now_us - self.taken_at_us);
        let cost_ns = self.policy.demand.quota.level_of(cost);
        self.taken_ns = self.taken_ns.saturating_sub(passed_ns) + cost_ns;
        self.taken_at_us = now_us;
        self.highest_ns = self.highest_ns.max(self.taken_ns);
    }

    pub(super) fn send(
        &mut self,
        process: usize,
        id: Id,
        trip: RoundTrip,
        trip_us: u64,
        fate: Fate,
    ) {
        let lost = Err(StoreError::new(StoreErrorKind::Timeout));
        let answer = match fate {
            Fate::RequestLost => lost,
            _ => {
                let answer = self.server(trip.operation, trip.charge.clone());
                if fate == Fate::Arrives { answer } else { lost }
            }
        };
        self.in_flight.push(InFlight {
            process,
            id,
            trip,
            answer,
            due_us: self.now_us() + trip_us,
        });
    }

    /// Lets time pass. Round trips end and sweeps run when they are due.
    pub(super) fn pass(&mut self, us: u64) {
        let until_us = self.now_us() + us;
        loop {
            let due = self.in_flight.iter().map(|trip| trip.due_us).min();
            let next_us = due.map_or(self.next_sweep_us, |due| due.min(self.next_sweep_us));
            if next_us > until_us {
                break;
            }
            self.clock.set_us(next_us);
            let in_flight = mem::take(&mut self.in_flight).into_iter();
            let (due, rest): (Vec<_>, _) = in_flight.partition(|trip| trip.due_us <= next_us);
            self.in_flight = rest;
            for InFlight {
                process,
                id,
                trip,
                answer,
                ..
            } in due
            {
                if let Some(trip) = self.processes[process].end_round_trip(id, trip, &answer) {
                    self.send(process, id, trip, LONGEST_TRIP_US, Fate::Arrives);
                }
            }
            if self.next_sweep_us <= next_us {
                self.next_sweep_us += SWEEP_EVERY_US;
                for process in 0..self.processes.len() {
                    for (id, trip) in self.processes[process].sweep().into_iter().flatten() {
                        self.send(process, id, trip, LONGEST_TRIP_US, Fate::Arrives);
                    }
                }
            }
        }
        self.clock.set_us(until_us);
    }
}
