//! [`PolicyOutcome`]: what a check finds in one bucket.

use crate::{
    charge::{Demand, Operation},
    quota::arithmetic::{Arithmetic, BucketState, Change, ReadContext, Reading},
};

/// Whether a policy had room, in microseconds.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// It had room. The request is held for `delay_us`. `is_near`: less than a fifth of the capacity is
    /// left.
    Room { delay_us: u64, is_near: bool },
    /// Its caller is banned for `retry_us`.
    Banned { retry_us: u64 },
    /// It has room after `retry_us`.
    Later { retry_us: u64 },
    /// Waiting does not help.
    NotByItself,
    /// Nothing helps.
    Impossible,
}

/// The outcome of a check for one policy, without its name and quota.
#[derive(Clone, Copy)]
pub(crate) struct PolicyOutcome {
    pub(super) moved: u64,
    pub(super) standing: BucketState,
    pub(super) now_us: u64,
    pub(super) outcome: Outcome,
}

impl PolicyOutcome {
    /// Computes the outcome from the state before the check. `rule` belongs to the demand's
    /// quota.
    #[inline(always)]
    pub(crate) fn new(
        rule: &impl Arithmetic,
        operation: Operation,
        demand: &Demand,
        fitting: u64,
        at: &ReadContext<'_>,
        reading: &Reading,
    ) -> Self {
        let (before, held) = (reading.standing, reading.held(rule.unit()));
        let mut change = demand.change(rule, operation, fitting, reading);
        if let Change::Give(cost) = change {
            change = Change::Give(rule.returnable(None, &before, cost, at));
        }
        let (moved, delay_us) = match change {
            // Taken, but not charged yet.
            Change::Take(0) if demand.hold.is_some() && operation == Operation::Take => {
                (demand.cost * fitting, 0)
            }
            Change::Take(0) | Change::Renew => (0, 0),
            Change::Take(more) => {
                let moved = match operation {
                    Operation::TakeUpTo => fitting,
                    Operation::Debit | Operation::Settle => more / rule.unit(),
                    _ => demand.cost,
                };
                (moved, rule.delay_us(&before, more, demand.quota.paces()))
            }
            Change::Give(less) => (less / rule.unit(), 0),
        };
        let standing = rule.after(before, change, at);
        let mut without_room = None;
        let is_for_nothing =
            operation == Operation::TakeUpTo && demand.cost == 0 && !demand.grants_nothing();
        if fitting == 0 && !is_for_nothing {
            let (least, overdraft) = demand.least(operation);
            // A denial may be the strike that starts a ban.
            let before = if demand.strikes.is_some() {
                standing
            } else {
                before
            };
            if !rule.fits(&before, least.saturating_add(held), overdraft) {
                let most = rule.max_level_for(least, overdraft);
                let retry_us = most.map(|most| retry_us(rule, &before, most, held, at.now_us));
                without_room = Some(match retry_us {
                    None => Outcome::Impossible,
                    Some(None) => Outcome::NotByItself,
                    Some(Some(retry_us)) if rule.bans() => Outcome::Banned { retry_us },
                    Some(Some(retry_us)) => Outcome::Later { retry_us },
                });
            }
        }
        // `is_near` is counted for each request. Here its algorithm is known already.
        let is_near = rule.is_nearly_used(standing.level);
        let outcome = without_room.unwrap_or(Outcome::Room { delay_us, is_near });
        Self {
            moved,
            standing,
            now_us: at.now_us,
            outcome,
        }
    }
}

/// A caller that is denied only because of units that others hold asks again after this time: the
/// time of their release is unknown.
const ASK_AGAIN_US: u64 = 1_000_000;

/// Returns the microseconds until the level and the held units together are no longer higher than
/// `most`. At most [`ASK_AGAIN_US`], or until there is room without the held units.
fn retry_us(
    rule: &impl Arithmetic,
    before: &BucketState,
    most: u64,
    held: u64,
    now_us: u64,
) -> Option<u64> {
    let fits_below = |most| match before.level > most {
        true => rule.retry_us(before, most, now_us),
        false => Some(0),
    };
    if held == 0 {
        return rule.retry_us(before, most, now_us);
    }
    let ask_again_us = fits_below(most)?.max(ASK_AGAIN_US);
    let beside_held = most.checked_sub(held).and_then(fits_below);
    Some(beside_held.map_or(ask_again_us, |retry_us| retry_us.min(ask_again_us)))
}
