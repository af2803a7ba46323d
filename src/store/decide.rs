//! What a check does to its buckets, once they are read: the same for every
//! store that keeps them as words.

use std::{mem, sync::Arc};

use smallvec::SmallVec;

use crate::{
    Decision, PolicyDecision, Verdict,
    charge::{Asked, Check, Leg, Operation},
    decision::Told,
    kept::Kept,
    quota::{
        EXACT, Rule, each,
        rules::{At, Change, Rules, Standing, State},
    },
};

/// One leg's bucket, for [`Check::decide`]: what is stored, and what becomes of it.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub(super) state: Option<State>,
    /// Set where `state` is new: from then on it means the same as none.
    pub(super) drained_at_us: Option<u64>,
}

impl Slot {
    /// The words that are stored, or `None` where there are none.
    #[must_use]
    pub fn new(stored: Option<&[u64]>) -> Self {
        Self {
            state: stored.map(State::from_slice),
            drained_at_us: None,
        }
    }

    /// The words that are to be stored now, and the instant (in microseconds
    /// since the UNIX epoch) from which they mean the same as none. `None`:
    /// what is stored stays.
    #[must_use]
    pub fn written(&self) -> Option<(&[u64], u64)> {
        Some((self.state.as_deref()?, self.drained_at_us?))
    }
}

impl Check<'_> {
    /// Does what the check asks for, in words read at one instant: for a
    /// [`Store`](super::Store) that keeps buckets as words of its own.
    ///
    /// `slots` are the buckets of [`legs`](Self::legs), in their order; a bucket
    /// is known by policy name, [kind](super::Leg::kind) and key bytes. Nobody
    /// else may write them between the reading and the writing. Where there are
    /// not as many as legs, nothing is admitted.
    pub fn decide(&self, now_us: u64, slots: &mut [Slot]) -> Decision {
        let now_us = now_us.clamp(1, EXACT);
        match (self.legs(), &mut *slots) {
            ([leg], [slot]) => self.decide_one(leg, now_us, mem::take(slot), |new| *slot = new),
            _ => decide(self, now_us, slots),
        }
    }

    /// The same for the only leg. The bucket is `put` back before the decision is
    /// made of it, so that others need not wait for that.
    #[inline]
    pub(super) fn decide_one(
        &self,
        leg: &Leg<'_>,
        now_us: u64,
        mut slot: Slot,
        put: impl FnOnce(Slot),
    ) -> Decision {
        let (told, fitting) = match self.operation() {
            // Nearly all are that: what only others need is left out.
            Operation::Take => {
                Check::new(Operation::Take, self.legs()).tell(leg, now_us, &mut slot)
            }
            _ => self.tell_any(leg, now_us, &mut slot),
        };
        put(slot);
        let policy = PolicyDecision::told(leg.policy.clone(), &leg.asked, told);
        Decision::of_one(self.operation(), policy, fitting, now_us)
    }

    #[inline(never)]
    fn tell_any(&self, leg: &Leg<'_>, now_us: u64, slot: &mut Slot) -> (Told, u64) {
        self.tell(leg, now_us, slot)
    }

    /// Reads and writes the only leg's bucket, whose algorithm is asked for once.
    /// In one piece with all that it calls: by itself the compiler leaves calls between.
    #[inline(always)]
    fn tell(&self, leg: &Leg<'_>, now_us: u64, slot: &mut Slot) -> (Told, u64) {
        each!(leg.asked.quota, rule => {
            let at = leg.at(rule, self.operation(), now_us);
            let (standing, fits) = read(rule, self.operation(), &leg.asked, slot, at);
            let fitting = most_fitting(self.operation(), &leg.asked).min(fits);
            write(rule, self.operation(), &leg.asked, slot, fitting, &standing, at);
            let told = Told::new(rule, self.operation(), &leg.asked, fitting, at, standing);
            (told, fitting)
        })
    }
}

/// Of words that callers share who have no bucket of their own.
impl Leg<'_> {
    /// The same leg for words that several callers share. One caller's debit must not
    /// lock out the others.
    pub(super) fn of_newcomers(&self, operation: Operation) -> Self {
        let mut leg = self.clone();
        if operation == Operation::Debit {
            leg.asked.to_mut().extra = 0;
        }
        if let Some(quota) = leg.asked.quota.of_newcomers() {
            leg.asked.to_mut().quota = Kept::Counted(Arc::new(quota));
        }
        leg
    }

    /// How much is taken: no less than of a caller that is seen for the first time,
    /// as this one may be.
    pub(super) fn level_of_newcomers(
        &self,
        operation: Operation,
        now_us: u64,
        slot: &mut Slot,
    ) -> u64 {
        let now_us = now_us.clamp(1, EXACT);
        each!(self.asked.quota, rule => {
            let at = self.at(rule, operation, now_us);
            let level = rule.read(slot.state.as_ref(), at).level;
            let unknown = rule.read(None, at).level;
            if level < unknown {
                *slot = Slot::default();
            }
            level.max(unknown)
        })
    }

    /// Lets what was written now last for as long as if nothing had been there before.
    pub(super) fn outlast(&self, operation: Operation, now_us: u64, slot: &mut Slot) {
        let now_us = now_us.clamp(1, EXACT);
        let Some(state) = &mut slot.state else {
            return;
        };
        slot.drained_at_us = each!(self.asked.quota, rule => {
            rule.outlast(state, self.at(rule, operation, now_us));
            Some(rule.drained_at_us(state))
        });
    }

    /// Takes what is missing in a slot for it to hold at every later instant at least
    /// what `least` does.
    pub(super) fn raise_to(
        &self,
        operation: Operation,
        now_us: u64,
        slot: &mut Slot,
        least: &Slot,
    ) {
        let now_us = now_us.clamp(1, EXACT);
        each!(self.asked.quota, rule => {
            let at = self.at(rule, operation, now_us);
            let standing = rule.read(slot.state.as_ref(), at);
            let least = rule.read(least.state.as_ref(), at);
            let change = Change::Take(rule.missing(&standing, &least, now_us));
            slot.state = Some(rule.write(slot.state.take(), &standing, change, at));
        });
        self.outlast(operation, now_us, slot);
    }
}

/// One for all, or the units that are asked for.
const fn most_fitting(operation: Operation, asked: &Asked) -> u64 {
    match operation {
        Operation::TakeUpTo => asked.cost,
        _ => 1,
    }
}

fn decide(check: &Check<'_>, now_us: u64, slots: &mut [Slot]) -> Decision {
    if slots.len() != check.legs().len() {
        return Decision::on_store_failure(Verdict::Denied);
    }
    let operation = check.operation();
    let offset_ms = |leg: &Leg<'_>| leg.asked.quota.offset_ms(leg.key_bytes());
    let legs = check.legs().iter().map(|leg| (&*leg.asked, offset_ms(leg)));
    let (fitting, readings) = settle(operation, legs, slots, now_us);
    let legs = check.legs().iter().zip(&*readings);
    let policies = legs.map(|(leg, &(at, standing))| {
        let (name, asked) = (leg.policy.clone(), &leg.asked);
        each!(asked.quota, rule => {
            PolicyDecision::new(rule, operation, name, asked, fitting, at, standing)
        })
    });
    Decision::new(operation, policies, fitting, now_us)
}

/// How each bucket stood, when and in which circumstances.
pub(super) type Readings = SmallVec<[(At, Standing); 4]>;

/// Reads all buckets, and takes from all or none. `legs`: what is asked of each, and
/// by how much its windows start later. With how they stood before, how many
/// units were taken of what is asked for; 1 or 0 where that is all or none.
pub(super) fn settle<'a>(
    operation: Operation,
    legs: impl Iterator<Item = (&'a Asked, u64)> + Clone,
    slots: &mut [Slot],
    now_us: u64,
) -> (u64, Readings) {
    let mut fitting = u64::MAX;
    let mut readings = Readings::new();
    for ((asked, offset_ms), slot) in legs.clone().zip(&*slots) {
        let (at, standing, fits) = each!(asked.quota, rule => {
            let at = asked.at(rule, operation, now_us, offset_ms);
            let (standing, fits) = read(rule, operation, asked, slot, at);
            (at, standing, fits)
        });
        fitting = fitting.min(fits).min(most_fitting(operation, asked));
        readings.push((at, standing));
    }
    for (((asked, _), slot), (at, standing)) in legs.zip(slots).zip(&readings) {
        each!(asked.quota, rule => write(rule, operation, asked, slot, fitting, standing, *at));
    }
    (fitting, readings)
}

/// How a leg's bucket stands, and how many units it has room for; 1 or 0 where
/// all are asked for or none.
#[inline(always)]
fn read(
    rule: &impl Rules,
    operation: Operation,
    asked: &Asked,
    slot: &Slot,
    at: At,
) -> (Standing, u64) {
    let standing = rule.read(slot.state.as_ref(), at);
    let fits = match operation {
        Operation::Take | Operation::Look => {
            u64::from(rule.fits(&standing, asked.level, asked.extra))
        }
        Operation::TakeUpTo => rule.units_that_fit(standing.level),
        Operation::GiveBack | Operation::Debit | Operation::Renew => 1,
    };
    (standing, fits)
}

#[inline(always)]
fn write(
    rule: &impl Rules,
    operation: Operation,
    asked: &Asked,
    slot: &mut Slot,
    fitting: u64,
    standing: &Standing,
    at: At,
) {
    let mut change = asked.change(rule, operation, fitting, standing);
    if let Change::Give(cost) = change {
        change = Change::Give(rule.returnable(slot.state.as_ref(), standing, cost, at));
    }
    let is_nothing = matches!(change, Change::Take(0) | Change::Give(0)) && !standing.unsaved;
    if is_nothing || operation == Operation::Look {
        return;
    }
    let state = rule.write(slot.state.take(), standing, change, at);
    *slot = Slot {
        drained_at_us: Some(rule.drained_at_us(&state)),
        state: Some(state),
    };
}
