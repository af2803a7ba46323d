//! One caller: how often it asks, and the units that are leased for it.
//!
//! No clock and no I/O: each method returns what to do next.

use std::{borrow::Cow, mem};

use crate::{
    Decision, PolicyDecision, Quota, StoreError,
    charge::{Charge, Demand, Operation},
    quota::{
        Params,
        arithmetic::{Arithmetic, BucketState},
        each,
    },
    util::interned::Interned,
};

/// How long leased units may be used. Together with the time in which their use justifies new
/// ones, and the time to refund them, this is less than a second.
pub(super) const LIFE_US: u64 = 750_000;
/// A caller holds no more than it used in this window and the last one.
const WINDOW_US: u64 = 50_000;
/// A caller holds at most one in this many of the units that the bucket has left. Redis
/// enforces it. As other callers take meanwhile, only half as much is asked for.
const PARTS: u64 = 8;
/// A round trip for fewer checks does not pay for itself.
const LEAST_CHECKS: u64 = 8;
/// A caller that has not asked for this many sweeps is idle.
const IDLE_SWEEPS: u8 = 3;

#[derive(Default)]
pub(super) struct Entry {
    usage: Usage,
    /// The state of the bucket by the server's last answer, the units that it had left, and
    /// when.
    standing: BucketState,
    room: u64,
    told_at_us: u64,
    /// It is used first.
    older: Batch,
    newer: Batch,
    /// Units that must be refunded.
    ended: u64,
    /// The charge of the last lease.
    leg: Option<Box<Charge<'static>>>,
    /// Whether a round trip is under way. There is at most one.
    in_flight: bool,
    /// How often its bucket was reset: leases from before are void.
    resets: u64,
    sweeps_since_asked: u8,
}

/// The units of one round trip.
#[derive(Clone, Copy, Default)]
struct Batch {
    units: u64,
    asked_at_us: u64,
}

/// Units taken from a lease. The decision is made once the entry is unlocked.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    standing: BucketState,
    told_at_us: u64,
    /// The leased units before.
    left: u64,
}

/// A check of the server for which no caller waits.
pub(super) struct RoundTrip {
    pub(super) operation: Operation,
    pub(super) leg: Charge<'static>,
    asked_at_us: u64,
    resets: u64,
}

/// What a sweep finds.
pub(super) enum SweepResult {
    Stays,
    /// Units must be refunded.
    GivesBack(RoundTrip),
    /// No caller asks, and no units are leased.
    Forgotten,
}

impl Entry {
    /// Takes the cost from leased units, if there are enough.
    pub(super) fn take(&mut self, leg: &Charge<'_>, now_us: u64) -> Option<Grant> {
        self.sweeps_since_asked = 0;
        self.end_what_is_over(now_us);
        let (cost, left) = (leg.demand.cost, self.left());
        if left == 0 {
            return None;
        }
        if *self.leg.as_deref()?.demand.quota != *leg.demand.quota {
            // With other numbers, a unit has another level.
            self.end_all();
            return None;
        }
        if left < cost {
            return None;
        }
        let from_older = cost.min(self.older.units);
        self.older.units -= from_older;
        self.newer.units -= cost - from_older;
        self.usage.add(cost, now_us);
        Some(Grant {
            standing: self.standing,
            told_at_us: self.told_at_us,
            left,
        })
    }

    /// Records the server's answer to a check that was not decided here.
    pub(super) fn told(&mut self, cost: u64, answer: &Result<Decision, StoreError>, now_us: u64) {
        self.observe(answer);
        if answer.as_ref().is_ok_and(Decision::is_allowed) {
            self.usage.add(cost, now_us);
        }
    }

    /// Returns a round trip that is worth making after a check.
    pub(super) fn next_round_trip(&mut self, leg: &Charge<'_>, now_us: u64) -> Option<RoundTrip> {
        if self.in_flight {
            return None;
        }
        if self.ended > 0 {
            return self.give_back(now_us);
        }
        let wanted = self.usage.recent(now_us).min(self.room / (2 * PARTS));
        let left = self.left();
        if left > wanted / 2 || wanted - left < leg.demand.cost.saturating_mul(LEAST_CHECKS) {
            return None;
        }
        let mut leg = leg.clone().into_owned();
        leg.demand = Cow::Owned(portion(&leg.demand.quota, wanted - left, wanted));
        Some(self.begin(Operation::Take, leg, now_us))
    }

    pub(super) const fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Records the end of a round trip.
    pub(super) fn arrived(
        &mut self,
        trip: RoundTrip,
        answer: &Result<Decision, StoreError>,
        is_closed: bool,
    ) {
        self.in_flight = false;
        if trip.operation == Operation::Take && trip.resets == self.resets {
            self.observe(answer);
            if answer.as_ref().is_ok_and(Decision::is_allowed) {
                self.paid_for(trip);
            }
        }
        if is_closed {
            self.end_all();
        }
    }

    /// Refunds old units, and all units of an idle caller.
    pub(super) fn sweep(&mut self, now_us: u64) -> SweepResult {
        self.sweeps_since_asked = self.sweeps_since_asked.saturating_add(1);
        let is_idle = self.sweeps_since_asked >= IDLE_SWEEPS;
        if is_idle {
            self.end_all();
        }
        self.end_what_is_over(now_us);
        if self.in_flight {
            return SweepResult::Stays;
        }
        match self.give_back(now_us) {
            Some(trip) => SweepResult::GivesBack(trip),
            None if is_idle => SweepResult::Forgotten,
            None => SweepResult::Stays,
        }
    }

    /// Refunds all units, for good.
    pub(super) fn close(&mut self, now_us: u64) -> Option<RoundTrip> {
        self.end_all();
        if self.in_flight {
            return None;
        }
        self.give_back(now_us)
    }

    /// Voids all units: the bucket was reset.
    pub(super) fn forget(&mut self) {
        (self.older, self.newer) = Default::default();
        self.ended = 0;
        self.resets += 1;
    }

    fn left(&self) -> u64 {
        self.older.units + self.newer.units
    }

    fn end_what_is_over(&mut self, now_us: u64) {
        for portion in [&mut self.older, &mut self.newer] {
            if portion.units > 0 && portion.is_over(now_us) {
                self.ended += mem::take(&mut portion.units);
            }
        }
    }

    fn end_all(&mut self) {
        self.ended += mem::take(&mut self.older.units) + mem::take(&mut self.newer.units);
    }

    fn observe(&mut self, answer: &Result<Decision, StoreError>) {
        let decision = answer.as_ref().ok();
        let Some(policy) = decision.and_then(|decision| decision.policies().next()) else {
            // Nothing is leased until the server answers again.
            self.room = 0;
            return;
        };
        self.room = policy.remaining();
        let (_, standing) = policy.standing();
        let at_us = decision.map_or(0, Decision::decided_at_us);
        // Answers may overtake each other; a clock may step.
        let later_us = self.told_at_us.saturating_sub(at_us);
        let is_overtaken = match later_us {
            0 => at_us == self.told_at_us && standing.level < self.standing.level,
            _ => later_us < LIFE_US,
        };
        if !is_overtaken {
            (self.standing, self.told_at_us) = (standing, at_us);
        }
    }

    fn paid_for(&mut self, trip: RoundTrip) {
        // Units that are held already end no later than before.
        if self.older.units == 0 {
            self.older = self.newer;
        } else {
            self.older.units += self.newer.units;
        }
        self.newer = Batch {
            units: trip.leg.demand.cost,
            asked_at_us: trip.asked_at_us,
        };
        self.leg = Some(Box::new(trip.leg));
    }

    /// Returns the refund of units that must not be used any more.
    pub(super) fn give_back(&mut self, now_us: u64) -> Option<RoundTrip> {
        let units = mem::take(&mut self.ended);
        if units == 0 {
            return None;
        }
        let mut leg = self.leg.as_deref()?.clone();
        let level = leg.demand.quota.level_of(units);
        leg.demand.to_mut().refund(level, 0);
        Some(self.begin(Operation::Refund, leg, now_us))
    }

    fn begin(&mut self, operation: Operation, leg: Charge<'static>, now_us: u64) -> RoundTrip {
        self.in_flight = true;
        RoundTrip {
            operation,
            leg,
            asked_at_us: now_us,
            resets: self.resets,
        }
    }
}

impl Grant {
    /// Returns the decision that the server would have made at its last answer, if only used
    /// units had been taken.
    pub(super) fn decision(self, leg: &Charge<'_>) -> Decision {
        let (operation, now_us) = (Operation::Take, self.told_at_us);
        let name = leg.policy.clone();
        each!(leg.demand.quota, rule => {
            // Levels beyond the capacity are reserved by other callers.
            let level = self.standing.level.min(rule.capacity());
            let before = BucketState {
                level: level.saturating_sub(self.left.saturating_mul(rule.unit())),
                ..self.standing
            };
            let at = leg.at(rule, operation, now_us);
            let policy = PolicyDecision::new(rule, operation, name, &leg.demand, 1, at, before);
            Decision::of_one(operation, policy, 1, now_us).made_from_lease()
        })
    }
}

impl Batch {
    /// Also true if the clock stepped back to before it was taken.
    fn is_over(&self, now_us: u64) -> bool {
        !(self.asked_at_us..self.asked_at_us.saturating_add(LIFE_US)).contains(&now_us)
    }
}

/// Demands `units`, which are granted only if the bucket has [`PARTS`] times as much as is
/// `held` then.
fn portion(quota: &Interned<Quota>, units: u64, held: u64) -> Demand {
    let kept_free = held.saturating_mul(PARTS).saturating_sub(units);
    let kept_free = quota.level_of(kept_free);
    Demand {
        overdraft: -i64::try_from(kept_free).unwrap_or(i64::MAX),
        ..Demand::new(quota.clone(), units)
    }
}

/// The units used in the current window and the previous one.
#[derive(Default)]
struct Usage {
    window: u64,
    present: u64,
    last: u64,
}

impl Usage {
    fn add(&mut self, units: u64, now_us: u64) {
        self.turn(now_us);
        self.present = self.present.saturating_add(units);
    }

    fn recent(&mut self, now_us: u64) -> u64 {
        self.turn(now_us);
        self.present.saturating_add(self.last)
    }

    fn turn(&mut self, now_us: u64) {
        let window = now_us / WINDOW_US;
        if window == self.window {
            return;
        }
        self.last = if window == self.window + 1 {
            self.present
        } else {
            0
        };
        (self.window, self.present) = (window, 0);
    }
}
