//! What a check does to its buckets, once they are read: the same for every
//! store that keeps them as words.

use smallvec::SmallVec;

use super::{Check, Operation};
use crate::{
    Decision, PolicyDecision, Verdict,
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
        decide(self, now_us.clamp(1, EXACT), slots)
    }
}

fn decide(check: &Check<'_>, now_us: u64, slots: &mut [Slot]) -> Decision {
    if slots.len() != check.legs().len() {
        return Decision::on_store_failure(Verdict::Denied);
    }
    let mut readings: SmallVec<[(At, Standing); 2]> = SmallVec::new();
    let operation = check.operation();
    // Units that every leg has room for.
    let mut fitting = match check.legs().first() {
        Some(leg) if operation == Operation::TakeUpTo => leg.asked.cost,
        _ => 1,
    };
    for (leg, slot) in check.legs().iter().zip(&*slots) {
        let (asked, at) = (&leg.asked, leg.at(operation, now_us));
        let quota = &asked.quota;
        let standing = each!(quota, rule => rule.read(slot.state.as_ref(), at));
        match operation {
            Operation::Take | Operation::Look => {
                if !quota.fits(&standing, asked.level, asked.extra) {
                    fitting = 0;
                }
            }
            Operation::TakeUpTo => fitting = fitting.min(quota.units_that_fit(&standing)),
            Operation::GiveBack => {}
            Operation::Renew => {
                let state = slot.state.as_ref();
                if each!(quota, rule => rule.returnable(state, &standing, 0, at)) == 0 {
                    fitting = 0;
                }
            }
        }
        readings.push((at, standing));
    }
    if operation != Operation::Look {
        for ((leg, slot), (at, standing)) in check.legs().iter().zip(slots).zip(&readings) {
            let quota = &leg.asked.quota;
            let mut change = leg.asked.change(operation, fitting);
            if let Change::Give(cost) = change {
                let state = slot.state.as_ref();
                let given = each!(quota, rule => rule.returnable(state, standing, cost, *at));
                change = Change::Give(given);
            }
            if matches!(change, Change::Take(0) | Change::Give(0)) && !standing.unsaved {
                continue;
            }
            let state = slot.state.take();
            let (state, drained_at_us) = each!(quota, rule => {
                let state = rule.write(state, standing, change, *at);
                let drained_at_us = rule.drained_at_us(&state);
                (state, drained_at_us)
            });
            *slot = Slot {
                state: Some(state),
                drained_at_us: Some(drained_at_us),
            };
        }
    }
    let legs = check.legs().iter().zip(&readings);
    let policies = legs.map(|(leg, (at, standing))| {
        PolicyDecision::new(
            operation,
            leg.policy.text,
            &leg.asked,
            fitting,
            *at,
            *standing,
        )
    });
    Decision::new(operation, policies, fitting, now_us)
}
