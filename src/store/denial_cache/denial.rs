//! One denial, and what follows from it later.

use std::mem;

use smallvec::SmallVec;

use super::Id;
use crate::{
    Decision, PolicyDecision, Quota, Verdict,
    charge::{Check, Demand},
    quota::{
        Params,
        arithmetic::{Arithmetic, BucketState, HoldReading, ReadContext, Reading},
        each,
        penalty::PenaltyParams,
    },
    util::interned::Interned,
};

/// The state of the buckets of a check when it was denied.
pub(super) struct Denial {
    pub(super) id: Id,
    /// The last refund before the check was sent.
    pub(super) seen: u64,
    /// When the check was sent, by the clock of this process: not after the decision.
    pub(super) sent_us: u64,
    /// When the answer came, by the clock of this process: not before the decision.
    answered_us: u64,
    /// When the store decided, by its clock.
    decided_us: u64,
    charges: SmallVec<[KnownBucket; 2]>,
}

struct KnownBucket {
    quota: Interned<Quota>,
    /// The cost of the denied check, in units. Under a penalty, which has no cost: how many denials
    /// that count as strikes were repeated here.
    cost_or_strikes: u64,
    standing: BucketState,
}

/// The strikes that each policy of a check has here, and the store does not know of.
pub(crate) type Strikes = SmallVec<[u64; 2]>;

impl Denial {
    pub(super) fn new(
        id: Id,
        seen: u64,
        [sent_us, answered_us]: [u64; 2],
        decision: &Decision,
    ) -> Self {
        let known = |policy: &PolicyDecision| {
            let (quota, standing) = policy.standing();
            KnownBucket {
                quota,
                cost_or_strikes: policy.cost(),
                standing,
            }
        };
        Self {
            id,
            seen,
            sent_us,
            answered_us,
            decided_us: decision.decided_at_us(),
            charges: decision.policies().map(known).collect(),
        }
    }

    /// Returns whether the denial holds at `now_us`. A clock may step back.
    pub(super) const fn is_of_time(&self, now_us: u64, longest_us: u64) -> bool {
        now_us >= self.sent_us && now_us - self.sent_us < longest_us
    }

    /// Returns the denial of a later check of the same buckets. `None`: it may fit or start a ban,
    /// so the store must decide.
    ///
    /// Decides by the longest time that may have passed: a check that does not fit then, does
    /// not fit. Reports by the shortest: a caller that waits for that long has waited enough.
    /// Where a denial is a strike, it counts one.
    pub(super) fn still(&mut self, check: &Check<'_>, now_us: u64) -> Option<Decision> {
        let earliest_us = self.decided_us + now_us.saturating_sub(self.answered_us);
        let latest_us = self.decided_us + now_us.saturating_sub(self.sent_us);
        let mut states: SmallVec<[Reading; 2]> = SmallVec::new();
        let (mut has_room, mut starts_ban) = (true, false);
        for (charge, known) in check.charges().iter().zip(&self.charges) {
            let asked = &charge.demand;
            // Nothing was held, or the denial would not be known.
            let hold = asked.hold.as_ref().map(|_| HoldReading::default());
            if known.quota != asked.quota {
                return None;
            }
            let later_ms = asked.quota.later_ms(charge.key_bytes());
            let standings = each!(asked.quota, rule => {
                let at = |now_us| asked.at(rule, check.operation(), now_us, later_ms);
                let cost = asked.quota.level_of(known.cost_or_strikes);
                let most = rule.max_level_for(cost, 0).unwrap_or(0);
                let from = ReadContext { most, ..at(self.decided_us) };
                let later = |now_us| rule.later(known.standing, &from, &at(now_us));
                let latest = later(latest_us);
                has_room &= latest.is_some_and(|latest| rule.fits(&latest, asked.level, asked.overdraft));
                latest.and(later(earliest_us))
            });
            let mut standing = standings?;
            if let Some(penalty) = struck(asked, &standing) {
                standing.level = standing.level.saturating_add(known.cost_or_strikes);
                starts_ban |= standing.level + 1 >= penalty.after;
            }
            states.push(Reading { standing, hold });
        }
        if has_room || starts_ban {
            return None;
        }
        let decision = denied(check, earliest_us, &states);
        if decision.verdict() == Verdict::Denied {
            let known = self.charges.iter_mut().zip(&states);
            for (charge, (known, Reading { standing, .. })) in check.charges().iter().zip(known) {
                known.cost_or_strikes += u64::from(struck(&charge.demand, standing).is_some());
            }
        }
        Some(decision)
    }

    /// Takes out the strikes that the store does not know of.
    pub(super) fn take_strikes(&mut self) -> Strikes {
        let known = self.charges.iter_mut();
        let strikes = known.map(|known| match known.quota.penalty() {
            Some(_) => mem::take(&mut known.cost_or_strikes),
            None => 0,
        });
        strikes.collect()
    }
}

/// Returns the penalty, if a denial is a strike there. During a ban, it is not.
fn struck<'a>(asked: &'a Demand, standing: &BucketState) -> Option<&'a PenaltyParams> {
    let penalty = asked.quota.penalty().filter(|_| asked.strikes.is_some());
    penalty.filter(|penalty| !penalty.is_banned(standing))
}

fn denied(check: &Check<'_>, now_us: u64, readings: &[Reading]) -> Decision {
    check.decision(now_us, 0, readings).cached()
}
