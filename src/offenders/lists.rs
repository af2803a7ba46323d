//! The list of callers and the ring of denials, behind one lock.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{
    DeniedCaller, RecentDenial,
    recent::{LENGTH, time},
    space_saving::SpaceSaving,
    top::{Offender, TopDenied},
};
use crate::{DenialReason, Fingerprint, Key, policy_name::Name};

/// How long until counts are halved. All processes halve at the same times.
const PERIOD_US: u64 = 600_000_000;

/// How long a denial stands for others of the same callers, in the ring.
const LONGEST_REPEAT_US: u64 = 1_000;

/// The name of a policy that denied, and the fingerprint of the caller, if it is listed. They become
/// lists of their own when they are read: the row "allocations per request, denied".
type DenyingPolicy = (Name, Option<Fingerprint>);

#[derive(Debug, Default)]
pub(super) struct DenialLists {
    pub(super) callers: SpaceSaving,
    /// The last denials, the latest first.
    recent: VecDeque<(SmallVec<[DenyingPolicy; 1]>, RecentDenial)>,
    /// When the latest was decided, and the hashes of its callers. Empty if one has no key.
    last: (u64, SmallVec<[u64; 2]>),
    /// The number of the period that the counts are of.
    period: u64,
}

impl DenialLists {
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

    /// Returns whether the last denial in the ring stands for this one: the same policies denied the
    /// same callers for the same reason within a millisecond. A client that does not slow down would
    /// fill the ring with itself.
    pub(super) fn repeats(
        &self,
        reason: DenialReason,
        callers: &[DeniedCaller<'_>],
        at_us: u64,
    ) -> bool {
        let (last_us, last_ids) = &self.last;
        let ids = callers.iter().map(|caller| &caller.id);
        self.recent
            .front()
            .is_some_and(|(_, last)| last.reason == reason)
            && at_us.abs_diff(*last_us) < LONGEST_REPEAT_US
            && !last_ids.is_empty()
            && last_ids.iter().eq(ids)
    }

    /// Puts a denial of these callers into the ring.
    pub(super) fn remember(
        &mut self,
        callers: &[DeniedCaller<'_>],
        mut denial: RecentDenial,
        at_us: u64,
    ) {
        let have_keys = callers.iter().all(|caller| caller.key.is_some());
        let ids = callers.iter().filter(|_| have_keys);
        self.last = (at_us, ids.map(|caller| caller.id).collect());
        // `collect` would take room for eight policies if five deny.
        let mut policies = SmallVec::with_capacity(callers.len());
        policies.extend(callers.iter().map(|caller| {
            let listed = self.callers.entries.get(&caller.id);
            let fingerprint = listed.map(|listed| listed.offender.fingerprint);
            (caller.policy.clone(), fingerprint)
        }));
        self.recent.truncate(LENGTH - 1);
        denial.at = time(at_us);
        self.recent.push_front((policies, denial));
    }

    /// Returns the last denials, the latest first.
    pub(super) fn recent(&self) -> Vec<RecentDenial> {
        let denials = self.recent.iter().map(|(policies, denial)| {
            let names = policies.iter().map(|(name, _)| name.text.to_string());
            // Of all policies, or of none.
            let fingerprints: Option<_> = policies.iter().map(|(_, caller)| *caller).collect();
            RecentDenial {
                policies: names.collect(),
                fingerprints: fingerprints.unwrap_or_default(),
                ..denial.clone()
            }
        });
        denials.collect()
    }

    pub(super) fn top(&self) -> TopDenied {
        let offenders = self.callers.entries.values().map(|known| Offender {
            policy: known.policy.text.to_string(),
            ..known.offender.clone()
        });
        TopDenied {
            offenders: offenders.collect(),
            unlisted: self.callers.floor,
            total: self.callers.total,
            missed: 0,
        }
    }

    /// Returns the key of a listed caller, if it is kept.
    pub(super) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        let callers = self.callers.entries.values();
        let mut meant = callers.filter(|known| known.offender.fingerprint == fingerprint);
        meant.find_map(|known| known.key.as_deref().map(Key::of_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::{DenialLists, PERIOD_US};

    /// Two threads read the time before and after the end of a period, and lock the lists in the
    /// other order.
    #[test]
    fn a_step_back_across_one_end_of_a_period_halves_once() {
        let mut lists = DenialLists::default();
        let period_us = 1_000_000 * PERIOD_US;
        lists.halve_until(period_us);
        lists.callers.total = 8;
        for us in [PERIOD_US, PERIOD_US - 1, PERIOD_US] {
            lists.halve_until(period_us + us);
            assert_eq!(lists.top().total, 4);
        }
    }
}
