//! One caller: how often it asks, and what was paid for it and is not used yet.
//!
//! No clock, no I/O: what comes of a question, an answer or the time is
//! returned, and somebody else sees to it.

use std::{borrow::Cow, mem};

use crate::{
    Decision, PolicyDecision, Quota, StoreError,
    charge::{Charge, Demand, Operation},
    quota::{
        Rule, each,
        rules::{Rules, Standing},
    },
    util::interned::Interned,
};

/// How long units may be used after they were asked for. With the time in which
/// the use of units justifies new ones, and that to give them back, less than a second.
pub(super) const LIFE_US: u64 = 750_000;
/// A caller holds no more than it used in this window and the last one.
const WINDOW_US: u64 = 50_000;
/// A caller holds at most one such part of what the bucket has left. Redis sees
/// to it; as others take meanwhile, only half as much is asked for.
const PARTS: u64 = 8;
/// A trip for fewer checks than these would not pay for itself.
const LEAST_CHECKS: u64 = 8;
/// After so many sweeps nobody has asked for long enough.
const IDLE_SWEEPS: u8 = 3;

#[derive(Default)]
pub(super) struct Entry {
    usage: Usage,
    /// How the bucket stood, as the server last said, the units that it had
    /// left, and when.
    standing: Standing,
    room: u64,
    told_at_us: u64,
    /// Used first.
    older: Portion,
    newer: Portion,
    /// Units that are not to be used any more, but given back.
    ended: u64,
    /// On whose behalf, where anything was ever paid for.
    leg: Option<Box<Charge<'static>>>,
    /// A trip is under way; there is never more than one.
    is_away: bool,
    /// How often its bucket was reset: what was paid for before is void.
    resets: u64,
    sweeps_since_asked: u8,
}

/// Units of one trip.
#[derive(Clone, Copy, Default)]
struct Portion {
    units: u64,
    asked_at_us: u64,
}

/// What a caller took from what was held, to be told when the entry is not
/// locked any more.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    standing: Standing,
    told_at_us: u64,
    /// The units that were held before.
    left: u64,
}

/// A question to the server that no caller waits for.
pub(super) struct Trip {
    pub(super) operation: Operation,
    pub(super) leg: Charge<'static>,
    asked_at_us: u64,
    resets: u64,
}

/// What a sweep found.
pub(super) enum Swept {
    Stays,
    /// There is something to give back.
    GivesBack(Trip),
    /// Nobody asks, and nothing is held.
    Forgotten,
}

impl Entry {
    /// Takes what is asked for from what is held, if it is enough.
    pub(super) fn take(&mut self, leg: &Charge<'_>, now_us: u64) -> Option<Grant> {
        self.sweeps_since_asked = 0;
        self.end_what_is_over(now_us);
        let (cost, left) = (leg.demand.cost, self.left());
        if left == 0 {
            return None;
        }
        if *self.leg.as_deref()?.demand.quota != *leg.demand.quota {
            // Of other numbers, a unit is something else.
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

    /// What the server said to a check that was not decided here.
    pub(super) fn told(&mut self, cost: u64, answer: &Result<Decision, StoreError>, now_us: u64) {
        self.hears(answer);
        if answer.as_ref().is_ok_and(Decision::is_allowed) {
            self.usage.add(cost, now_us);
        }
    }

    /// The trip that is worth making after `leg` was asked about.
    pub(super) fn next_trip(&mut self, leg: &Charge<'_>, now_us: u64) -> Option<Trip> {
        if self.is_away {
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
        Some(self.sets_out(Operation::Take, leg, now_us))
    }

    pub(super) const fn is_away(&self) -> bool {
        self.is_away
    }

    /// Brings home what became of a trip.
    pub(super) fn arrived(
        &mut self,
        trip: Trip,
        answer: &Result<Decision, StoreError>,
        is_closed: bool,
    ) {
        self.is_away = false;
        if trip.operation == Operation::Take && trip.resets == self.resets {
            self.hears(answer);
            if answer.as_ref().is_ok_and(Decision::is_allowed) {
                self.paid_for(trip);
            }
        }
        if is_closed {
            self.end_all();
        }
    }

    /// Gives back what is over, and everything when nobody has asked for a while.
    pub(super) fn sweep(&mut self, now_us: u64) -> Swept {
        self.sweeps_since_asked = self.sweeps_since_asked.saturating_add(1);
        let is_idle = self.sweeps_since_asked >= IDLE_SWEEPS;
        if is_idle {
            self.end_all();
        }
        self.end_what_is_over(now_us);
        if self.is_away {
            return Swept::Stays;
        }
        match self.give_back(now_us) {
            Some(trip) => Swept::GivesBack(trip),
            None if is_idle => Swept::Forgotten,
            None => Swept::Stays,
        }
    }

    /// Gives back everything, as nobody will ask any more.
    pub(super) fn close(&mut self, now_us: u64) -> Option<Trip> {
        self.end_all();
        if self.is_away {
            return None;
        }
        self.give_back(now_us)
    }

    /// The bucket was reset: nothing of what was paid for is left, here or in
    /// the bucket.
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

    fn hears(&mut self, answer: &Result<Decision, StoreError>) {
        let decision = answer.as_ref().ok();
        let Some(policy) = decision.and_then(|decision| decision.policies().next()) else {
            // Nothing is paid for until it answers again.
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

    fn paid_for(&mut self, trip: Trip) {
        // What was held already ends no later than it did.
        if self.older.units == 0 {
            self.older = self.newer;
        } else {
            self.older.units += self.newer.units;
        }
        self.newer = Portion {
            units: trip.leg.demand.cost,
            asked_at_us: trip.asked_at_us,
        };
        self.leg = Some(Box::new(trip.leg));
    }

    /// What is not to be used any more.
    pub(super) fn give_back(&mut self, now_us: u64) -> Option<Trip> {
        let units = mem::take(&mut self.ended);
        if units == 0 {
            return None;
        }
        let mut leg = self.leg.as_deref()?.clone();
        let level = leg.demand.quota.level_of(units);
        leg.demand.to_mut().refund(level, 0);
        Some(self.sets_out(Operation::Refund, leg, now_us))
    }

    fn sets_out(&mut self, operation: Operation, leg: Charge<'static>, now_us: u64) -> Trip {
        self.is_away = true;
        Trip {
            operation,
            leg,
            asked_at_us: now_us,
            resets: self.resets,
        }
    }
}

impl Grant {
    /// As the server would have said it when it last said anything, had nothing
    /// been paid for but what was used.
    pub(super) fn decision(self, leg: &Charge<'_>) -> Decision {
        let (operation, now_us) = (Operation::Take, self.told_at_us);
        let name = leg.policy.clone();
        each!(leg.demand.quota, rule => {
            // Beyond the capacity is what others have reserved.
            let level = self.standing.level.min(rule.capacity());
            let before = Standing {
                level: level.saturating_sub(self.left.saturating_mul(rule.unit())),
                ..self.standing
            };
            let at = leg.at(rule, operation, now_us);
            let policy = PolicyDecision::new(rule, operation, name, &leg.demand, 1, at, before);
            Decision::of_one(operation, policy, 1, now_us).made_from_lease()
        })
    }
}

impl Portion {
    /// Also where the clock stepped back to before it was there.
    fn is_over(&self, now_us: u64) -> bool {
        !(self.asked_at_us..self.asked_at_us.saturating_add(LIFE_US)).contains(&now_us)
    }
}

/// Asks for `units`, to be had only if the bucket has [`PARTS`] times as much as
/// is `held` then.
fn portion(quota: &Interned<Quota>, units: u64, held: u64) -> Demand {
    let kept_free = held.saturating_mul(PARTS).saturating_sub(units);
    let kept_free = quota.level_of(kept_free);
    Demand {
        overdraft: -i64::try_from(kept_free).unwrap_or(i64::MAX),
        ..Demand::new(quota.clone(), units)
    }
}

/// The units used in the present window and the one before.
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
