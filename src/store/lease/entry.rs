//! One caller: how much it uses, and the units that are leased for it.
//!
//! Without a clock and I/O: each method returns what to do next.

use std::{borrow::Cow, mem};

use crate::{
    Decision, PolicyDecision, Quota, StoreError,
    charge::{Charge, Demand, Operation},
    quota::{
        Params,
        arithmetic::{Arithmetic, BucketState, Reading},
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
    /// The state of the bucket in the server's last answer, the units that it had left, and the
    /// instant of that answer.
    state: BucketState,
    room: u64,
    answered_at_us: u64,
    /// The batch that is used first.
    older: Batch,
    newer: Batch,
    /// The units that must be refunded.
    ended: u64,
    /// The charge of the last lease, or of the first one while that is under way.
    pub(super) charge: Option<Box<Charge<'static>>>,
    /// Whether a round trip is under way. There is at most one.
    pub(super) in_flight: bool,
    /// How often its bucket was reset. Leases from before a reset are void.
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
    state: BucketState,
    answered_at_us: u64,
    /// How many units were leased before.
    left: u64,
}

/// A check of the server for which no caller waits.
pub(super) struct RoundTrip {
    pub(super) operation: Operation,
    pub(super) charge: Charge<'static>,
    asked_at_us: u64,
    resets: u64,
}

impl Entry {
    /// Takes the cost from leased units, if there are enough.
    pub(super) fn take(&mut self, charge: &Charge<'_>, now_us: u64) -> Option<Grant> {
        self.sweeps_since_asked = 0;
        self.end_old_batches(now_us);
        let (cost, left) = (charge.demand.cost, self.left());
        if left == 0 {
            return None;
        }
        if *self.charge.as_deref()?.demand.quota != *charge.demand.quota {
            // In a quota with other numbers, a unit is another level.
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
            state: self.state,
            answered_at_us: self.answered_at_us,
            left,
        })
    }

    /// Records the server's answer to a check that was not decided here.
    pub(super) fn record_answer(
        &mut self,
        cost: u64,
        answer: &Result<Decision, StoreError>,
        now_us: u64,
    ) {
        self.observe(answer);
        if answer.as_ref().is_ok_and(Decision::is_allowed) {
            self.usage.add(cost, now_us);
        }
    }

    /// Returns the round trip to make after a check, if one is worth its cost.
    pub(super) fn next_round_trip(
        &mut self,
        charge: &Charge<'_>,
        now_us: u64,
    ) -> Option<RoundTrip> {
        if self.in_flight || self.ended > 0 {
            return self.refund(now_us);
        }
        let wanted = self.usage.recent(now_us).min(self.room / (2 * PARTS));
        let left = self.left();
        if left > wanted / 2 || wanted - left < charge.demand.cost.saturating_mul(LEAST_CHECKS) {
            return None;
        }
        let mut charge = charge.clone().into_owned();
        charge.demand = Cow::Owned(demand(&charge.demand.quota, wanted - left, wanted));
        self.charge.get_or_insert_with(|| Box::new(charge.clone()));
        Some(self.begin(Operation::Take, charge, now_us))
    }

    /// Records the end of a round trip.
    pub(super) fn end_round_trip(
        &mut self,
        trip: RoundTrip,
        answer: &Result<Decision, StoreError>,
        is_closed: bool,
    ) {
        self.in_flight = false;
        if trip.operation == Operation::Take && trip.resets == self.resets {
            self.observe(answer);
            if answer.as_ref().is_ok_and(Decision::is_allowed) {
                self.add_batch(trip);
            }
        }
        if is_closed {
            self.end_all();
        }
    }

    /// Refunds old units, and all units of an idle caller.
    pub(super) fn sweep(&mut self, now_us: u64) -> Option<RoundTrip> {
        self.sweeps_since_asked = self.sweeps_since_asked.saturating_add(1);
        if self.sweeps_since_asked >= IDLE_SWEEPS {
            self.end_all();
        }
        self.end_old_batches(now_us);
        self.refund(now_us)
    }

    /// Returns whether the caller has left, and nothing is leased or under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.sweeps_since_asked >= IDLE_SWEEPS && !self.in_flight
    }

    /// Refunds all units. The caller leases none from now on.
    pub(super) fn close(&mut self, now_us: u64) -> Option<RoundTrip> {
        self.end_all();
        self.refund(now_us)
    }

    /// Voids all units, because the bucket was reset.
    pub(super) fn void(&mut self) {
        (self.older, self.newer) = Default::default();
        self.ended = 0;
        self.resets += 1;
    }

    /// Returns how many units are leased and not used.
    pub(super) fn left(&self) -> u64 {
        self.older.units + self.newer.units
    }

    fn end_old_batches(&mut self, now_us: u64) {
        for batch in [&mut self.older, &mut self.newer] {
            if batch.units > 0 && batch.is_over(now_us) {
                self.ended += mem::take(&mut batch.units);
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
        let (_, state) = policy.standing();
        let at_us = decision.map_or(0, Decision::decided_at_us);
        // Answers may overtake each other; a clock may step.
        let later_us = self.answered_at_us.saturating_sub(at_us);
        let is_overtaken = match later_us {
            0 => at_us == self.answered_at_us && state.level < self.state.level,
            _ => later_us < LIFE_US,
        };
        if !is_overtaken {
            (self.state, self.answered_at_us) = (state, at_us);
        }
    }

    fn add_batch(&mut self, trip: RoundTrip) {
        // Batches that are merged end when the older one does.
        if self.older.units == 0 {
            self.older = self.newer;
        } else {
            self.older.units += self.newer.units;
        }
        self.newer = Batch {
            units: trip.charge.demand.cost,
            asked_at_us: trip.asked_at_us,
        };
        self.charge = Some(Box::new(trip.charge));
    }

    /// Returns the refund of units that must not be used anymore, unless a round trip is under way.
    pub(super) fn refund(&mut self, now_us: u64) -> Option<RoundTrip> {
        if self.in_flight || self.ended == 0 {
            return None;
        }
        let units = mem::take(&mut self.ended);
        let mut charge = self.charge.as_deref()?.clone();
        let level = charge.demand.quota.level_of(units);
        charge.demand.to_mut().refund(level, 0);
        Some(self.begin(Operation::Refund, charge, now_us))
    }

    fn begin(&mut self, operation: Operation, charge: Charge<'static>, now_us: u64) -> RoundTrip {
        self.in_flight = true;
        RoundTrip {
            operation,
            charge,
            asked_at_us: now_us,
            resets: self.resets,
        }
    }
}

impl Grant {
    /// Returns the decision that the server would have made at the instant of its last answer,
    /// if only the used units of the leases had been taken.
    pub(super) fn decision(self, charge: &Charge<'_>) -> Decision {
        let (operation, now_us) = (Operation::Take, self.answered_at_us);
        each!(charge.demand.quota, rule => {
            // Levels beyond the capacity are reserved by other callers.
            let level = self.state.level.min(rule.capacity());
            let before = Reading {
                standing: BucketState {
                level: level.saturating_sub(self.left.saturating_mul(rule.unit())),
                ..self.state
            },
                hold: None,
            };
            let policy = PolicyDecision::new(rule, operation, charge, 1, now_us, &before);
            Decision::leased(policy)
        })
    }
}

impl Batch {
    /// Returns whether the batch has ended, or was taken in the future of a clock that stepped
    /// back.
    fn is_over(&self, now_us: u64) -> bool {
        !(self.asked_at_us..self.asked_at_us.saturating_add(LIFE_US)).contains(&now_us)
    }
}

/// Returns the demand for `units`. They are granted only if the bucket has [`PARTS`] times the
/// units that this process then holds, which are `held`.
fn demand(quota: &Interned<Quota>, units: u64, held: u64) -> Demand {
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
