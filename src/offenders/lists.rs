//! The list of callers and the ring of denials, behind one lock.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{
    DeniedCaller, RecentDenial,
    known::{Identity, Known},
    recent::{Details, Kept, LENGTH, time},
    space_saving::SpaceSaving,
    top::{Offender, TopDenied},
};
use crate::Fingerprint;
use crate::{DenialReason, Key};

/// How long until counts are halved. All processes halve at the same times.
const PERIOD_US: u64 = 600_000_000;

/// How long a denial stands for others of the same callers, in the ring.
const LONGEST_REPEAT_US: u64 = 1_000;

#[derive(Debug)]
pub(super) struct DenialLists {
    callers: SpaceSaving<Known>,
    /// The last denials, the latest at the end.
    recent: VecDeque<Kept>,
    /// The hashes of the callers of the latest. Empty if one of them has no key.
    last_ids: SmallVec<[u64; 2]>,
    /// How many denials there were, with those that are not kept any longer.
    pub(super) recorded: u64,
    /// The number of the period that the counts are of.
    period: u64,
}

impl DenialLists {
    pub(super) const fn new() -> Self {
        Self {
            callers: SpaceSaving::new(),
            recent: VecDeque::new(),
            last_ids: SmallVec::new_const(),
            recorded: 0,
            period: 0,
        }
    }

    /// Halves the counts once for each period that has passed.
    pub(super) fn halve_until(&mut self, now_us: u64) {
        let period = now_us / PERIOD_US;
        if period > self.period {
            let passed = u32::try_from(period - self.period).unwrap_or(u32::MAX);
            self.callers.halve(passed);
            self.period = period;
        } else if period + 1 < self.period {
            // The clock was set back. A step across one boundary is that of two threads.
            self.period = period;
        }
    }

    /// Counts those callers of a denial that are listed. Returns the others, with their keys.
    pub(super) fn count<'a>(
        &mut self,
        callers: &'a [DeniedCaller<'a>],
        at_us: u64,
    ) -> SmallVec<[(&'a DeniedCaller<'a>, &'a Key); 1]> {
        let with_key = callers
            .iter()
            .filter_map(|caller| Some((caller, caller.key?)));
        with_key
            .filter(|(caller, _)| self.callers.count_listed(caller.id, at_us).is_none())
            .collect()
    }

    /// Counts a caller, and lists it. `shadow`: a shadow policy would have denied it.
    pub(super) fn list(
        &mut self,
        caller: &DeniedCaller<'_>,
        shadow: bool,
        identity: Identity,
        at_us: u64,
    ) {
        let known = Known {
            policy: caller.policy.clone(),
            shadow,
            identity,
        };
        self.callers.count(caller.id, at_us, known);
    }

    /// Returns whether the last denial in the ring stands for this one: the same policies denied the
    /// same callers for the same reason within a millisecond. A client that does not slow down would
    /// fill the ring with itself.
    pub(super) fn repeats(
        &self,
        reason: DenialReason,
        callers: &[DeniedCaller<'_>],
        at_us: u64,
    ) -> bool {
        self.recent.back().is_some_and(|last| {
            last.reason == reason
                && at_us.abs_diff(last.at_us) < LONGEST_REPEAT_US
                && !self.last_ids.is_empty()
                && self
                    .last_ids
                    .iter()
                    .eq(callers.iter().map(|caller| &caller.id))
        })
    }

    /// Puts a denial into the ring.
    pub(super) fn remember(
        &mut self,
        reason: DenialReason,
        callers: &[DeniedCaller<'_>],
        details: Details,
        at_us: u64,
    ) {
        let have_keys = callers.iter().all(|caller| caller.key.is_some());
        let ids = callers.iter().filter(|_| have_keys);
        self.last_ids = ids.map(|caller| caller.id).collect();
        let policies = callers.iter().map(|caller| {
            let known = self.callers.listed(caller.id);
            let fingerprint = known.map(|known| known.identity.fingerprint);
            (caller.policy.clone(), fingerprint)
        });
        let kept = Kept {
            at_us,
            reason,
            policies: policies.collect(),
            details,
        };
        if self.recent.len() == LENGTH {
            self.recent.pop_front();
        }
        self.recent.push_back(kept);
        self.recorded += 1;
    }

    /// Returns the denials in the ring, the latest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = RecentDenial> {
        self.recent.iter().rev().map(Kept::to_public)
    }

    pub(super) fn top(&self) -> TopDenied {
        let offenders = self.callers.entries().iter().map(|entry| Offender {
            policy: entry.caller.policy.text.to_string(),
            shadow: entry.caller.shadow,
            fingerprint: entry.caller.identity.fingerprint,
            count: entry.count,
            error: entry.error,
            last_seen: time(entry.last_us),
            name: entry.caller.identity.name.as_deref().map(str::to_owned),
        });
        TopDenied {
            offenders: offenders.collect(),
            unlisted: self.callers.floor(),
            total: self.callers.total(),
            missed: 0,
        }
    }

    /// Returns the key of a listed caller, if it is kept.
    pub(super) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        let identities = self
            .callers
            .entries()
            .iter()
            .map(|entry| &entry.caller.identity);
        let mut meant = identities.filter(|identity| identity.fingerprint == fingerprint);
        meant.find_map(|identity| identity.key.as_deref().map(Key::of_bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{DenialLists, DeniedCaller, Identity, PERIOD_US};
    use crate::{Key, policy_name::Name};

    /// Two threads read the time before and after the end of a period, and lock the lists in the
    /// other order.
    #[test]
    fn a_step_back_across_one_end_of_a_period_halves_once() {
        let mut lists = DenialLists::new();
        let period_us = 1_000_000 * PERIOD_US;
        lists.halve_until(period_us);
        let (policy, key) = (Name::new("api").unwrap(), Key::from("ann"));
        let caller = DeniedCaller {
            policy: &policy,
            key: Some(&key),
            id: 1,
        };
        for _ in 0..8 {
            lists.list(&caller, false, Identity::new(&key, None, None), 0);
        }
        for us in [PERIOD_US, PERIOD_US - 1, PERIOD_US] {
            lists.halve_until(period_us + us);
            assert_eq!(lists.top().total, 4);
        }
    }
}
