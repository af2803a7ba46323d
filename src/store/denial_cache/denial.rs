//! One denial, and what follows from it later.

use smallvec::SmallVec;

use super::Id;
use crate::{
    Decision, PolicyDecision, Quota, Verdict,
    charge::Check,
    quota::{
        Params,
        arithmetic::{Arithmetic, BucketState, ReadContext},
        each,
    },
    util::interned::Interned,
};

/// The state of the buckets of a check when it was denied.
pub(super) struct Denial {
    pub(super) id: Id,
    /// The last refund before it was sent.
    pub(super) seen: u64,
    /// By the clock here: not after it was decided,
    sent_us: u64,
    /// and not before.
    answered_us: u64,
    /// When it was decided, by the store's clock.
    decided_us: u64,
    legs: SmallVec<[KnownBucket; 2]>,
}

struct KnownBucket {
    quota: Interned<Quota>,
    /// In units, of what was asked.
    cost: u64,
    standing: BucketState,
}

/// What is known of a later check of the same buckets.
#[allow(clippy::large_enum_variant)] // It is looked at once, where it was made.
pub(super) enum Recheck {
    /// It would be denied.
    Denied(Decision),
    /// It can never be allowed: the store is asked.
    Impossible,
    /// It may fit: the store's next denial replaces this one.
    Unknown,
}

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
                cost: policy.cost(),
                standing,
            }
        };
        Self {
            id,
            seen,
            sent_us,
            answered_us,
            decided_us: decision.decided_at_us(),
            legs: decision.policies().map(known).collect(),
        }
    }

    pub(super) const fn is_older_than(&self, other: &Self) -> bool {
        self.sent_us < other.sent_us
    }

    /// Whether the denial holds at `now_us`. A clock may step back.
    pub(super) const fn is_of_time(&self, now_us: u64, longest_us: u64) -> bool {
        now_us >= self.sent_us && now_us - self.sent_us < longest_us
    }

    /// Decides by the longest time that may have passed: a check that does not fit then, does
    /// not fit. Reports by the shortest: a caller that waits for that long has waited enough.
    pub(super) fn still(&self, check: &Check<'_>, now_us: u64) -> Recheck {
        let told_us = self.decided_us + now_us.saturating_sub(self.answered_us);
        let latest_us = self.decided_us + now_us.saturating_sub(self.sent_us);
        let mut told: SmallVec<[(ReadContext, BucketState); 2]> = SmallVec::new();
        let mut has_room = true;
        for (leg, known) in check.charges().iter().zip(&self.legs) {
            let asked = &leg.demand;
            if known.quota != asked.quota {
                return Recheck::Unknown;
            }
            let offset_ms = asked.quota.offset_ms(leg.key_bytes());
            let standings = each!(asked.quota, rule => {
                let at = |now_us| asked.at(rule, check.operation(), now_us, offset_ms);
                let most = rule.max_level_for(asked.quota.level_of(known.cost), 0).unwrap_or(0);
                let from = ReadContext { most, ..at(self.decided_us) };
                let later = |now_us| rule.later(known.standing, from, at(now_us));
                let latest = later(latest_us);
                has_room &= latest.is_some_and(|latest| rule.fits(&latest, asked.level, asked.overdraft));
                latest.and(later(told_us)).map(|standing| (at(told_us), standing))
            });
            let Some(standing) = standings else {
                return Recheck::Unknown;
            };
            told.push(standing);
        }
        if has_room {
            return Recheck::Unknown;
        }
        let decision = denied(check, told_us, &told);
        match decision.verdict() {
            Verdict::Denied => Recheck::Denied(decision.remembered()),
            _ => Recheck::Impossible,
        }
    }
}

fn denied(check: &Check<'_>, now_us: u64, standings: &[(ReadContext, BucketState)]) -> Decision {
    let operation = check.operation();
    let legs = check.charges().iter().zip(standings);
    let mut policies = legs.map(|(leg, (at, standing))| {
        let (name, asked) = (leg.policy.clone(), &leg.demand);
        each!(asked.quota, rule => {
            PolicyDecision::new(rule, operation, name, asked, 0, *at, *standing)
        })
    });
    match (policies.len(), policies.next()) {
        (1, Some(policy)) => Decision::of_one(operation, policy, 0, now_us),
        (_, first) => Decision::new(operation, first.into_iter().chain(policies), 0, now_us),
    }
}
