//! One denial, and what follows from it at a later instant.

use smallvec::SmallVec;

use super::Id;
use crate::{
    Decision, PolicyDecision, Quota, Verdict,
    charge::Check,
    quota::{
        Rule, each,
        rules::{At, Rules, Standing},
    },
    util::interned::Interned,
};

/// How the buckets of a check stood when it was denied.
pub(super) struct Denial {
    pub(super) id: Id,
    /// What was given back before.
    pub(super) seen: u64,
    /// By the clock here: not after it was decided,
    sent_us: u64,
    /// and not before.
    answered_us: u64,
    /// When it was decided, by the store's clock.
    decided_us: u64,
    legs: SmallVec<[Known; 2]>,
}

struct Known {
    quota: Interned<Quota>,
    /// In units, of what was asked.
    cost: u64,
    standing: Standing,
}

/// What is known of another check of the same legs.
#[allow(clippy::large_enum_variant)] // It is looked at once, where it was made.
pub(super) enum Still {
    /// It would be denied.
    Denied(Decision),
    /// It can never be granted: the store may say so.
    Impossible,
    /// It may have room: what the store says now is to be remembered.
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
            Known {
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

    /// A clock may step back: outside these times nothing holds.
    pub(super) const fn is_of_time(&self, now_us: u64, longest_us: u64) -> bool {
        now_us >= self.sent_us && now_us - self.sent_us < longest_us
    }

    /// Nobody has room who had none by the most time that may have passed. They
    /// are told what follows from the least: who waits for so long has waited
    /// long enough.
    pub(super) fn still(&self, check: &Check<'_>, now_us: u64) -> Still {
        let told_us = self.decided_us + now_us.saturating_sub(self.answered_us);
        let latest_us = self.decided_us + now_us.saturating_sub(self.sent_us);
        let mut told: SmallVec<[(At, Standing); 2]> = SmallVec::new();
        let mut has_room = true;
        for (leg, known) in check.charges().iter().zip(&self.legs) {
            let asked = &leg.demand;
            if known.quota != asked.quota {
                return Still::Unknown;
            }
            let offset_ms = asked.quota.offset_ms(leg.key_bytes());
            let standings = each!(asked.quota, rule => {
                let at = |now_us| asked.at(rule, check.operation(), now_us, offset_ms);
                let most = rule.most(asked.quota.level_of(known.cost), 0).unwrap_or(0);
                let from = At { most, ..at(self.decided_us) };
                let later = |now_us| rule.later(known.standing, from, at(now_us));
                let latest = later(latest_us);
                has_room &= latest.is_some_and(|latest| rule.fits(&latest, asked.level, asked.overdraft));
                latest.and(later(told_us)).map(|standing| (at(told_us), standing))
            });
            let Some(standing) = standings else {
                return Still::Unknown;
            };
            told.push(standing);
        }
        if has_room {
            return Still::Unknown;
        }
        let decision = denied(check, told_us, &told);
        match decision.verdict() {
            Verdict::Denied => Still::Denied(decision.remembered()),
            _ => Still::Impossible,
        }
    }
}

fn denied(check: &Check<'_>, now_us: u64, standings: &[(At, Standing)]) -> Decision {
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
