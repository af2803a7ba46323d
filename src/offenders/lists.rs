//! The list of callers and the ring of denials, behind one lock.

use smallvec::SmallVec;

use super::{
    DeniedCaller, NewDenial,
    known::{Identity, Known},
    recent::{Kept, Recent, time},
    space_saving::SpaceSaving,
    top::{Offender, TopDenied},
};
#[cfg(feature = "admin")]
use crate::Key;
use crate::{DenialReason, Fingerprint, policy_name::Name};

/// How long until counts are halved. All processes halve at the same times.
const PERIOD_US: u64 = 600_000_000;

/// How long a denial stands for others of the same callers, in the ring.
const LONGEST_REPEAT_US: u64 = 1_000;

#[derive(Debug)]
pub(super) struct DenialLists {
    callers: SpaceSaving<Known>,
    pub(super) recent: Recent,
    /// The number of the period that the counts are of.
    period: u64,
    /// The last denial in the ring, if all its callers have keys.
    last: Option<Last>,
}

/// A denial in the ring that may be repeated.
#[derive(Debug)]
struct Last {
    ids: SmallVec<[u64; 2]>,
    reason: DenialReason,
    at_us: u64,
}

impl DenialLists {
    pub(super) const fn new() -> Self {
        Self {
            callers: SpaceSaving::new(),
            recent: Recent::new(),
            period: 0,
            last: None,
        }
    }

    /// Halves the counts once for each period that has passed.
    #[inline]
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

    /// Counts a denial, if all its callers are listed. Returns whether they are.
    #[inline]
    pub(super) fn count(&mut self, denial: &NewDenial<'_>, at_us: u64) -> bool {
        let mut with_key = denial.callers.iter().filter(|caller| caller.key.is_some());
        let are_listed = with_key.all(|caller| self.callers.is_listed(caller.id));
        if are_listed {
            let known = denial.callers.iter().map(|caller| {
                let known = self.callers.count_listed(caller.id, at_us);
                known.map(|known| known.identity.fingerprint)
            });
            let fingerprints: SmallVec<[_; 1]> = known.collect();
            self.remember(denial, &fingerprints, at_us);
        }
        are_listed
    }

    /// Counts a denial, and lists those of its callers that are not listed. `identities`: of each
    /// caller that has a key.
    pub(super) fn list(
        &mut self,
        denial: &NewDenial<'_>,
        identities: SmallVec<[Option<Identity>; 1]>,
        at_us: u64,
    ) {
        let fingerprint = |identity: &Option<Identity>| Some(identity.as_ref()?.fingerprint);
        let fingerprints: SmallVec<[_; 1]> = identities.iter().map(fingerprint).collect();
        for (caller, identity) in denial.callers.iter().zip(identities) {
            if let Some(identity) = identity {
                let known = Known {
                    policy: caller.policy.clone(),
                    shadow: false,
                    identity,
                };
                self.callers.count(caller.id, at_us, known);
            }
        }
        self.remember(denial, &fingerprints, at_us);
    }

    /// Counts a caller of a shadow policy, and lists it if it is not listed.
    pub(super) fn count_shadow(
        &mut self,
        id: u64,
        at_us: u64,
        identity: impl FnOnce() -> (Name, Identity),
    ) {
        if self.callers.count_listed(id, at_us).is_none() {
            let (policy, identity) = identity();
            let known = Known {
                policy,
                shadow: true,
                identity,
            };
            self.callers.count(id, at_us, known);
        }
    }

    /// Puts a denial into the ring, unless the last one stands for it: the same policies denied the
    /// same callers for the same reason within a millisecond. A client that does not slow down would
    /// fill the ring with itself.
    fn remember(
        &mut self,
        denial: &NewDenial<'_>,
        fingerprints: &[Option<Fingerprint>],
        at_us: u64,
    ) {
        let callers = &denial.callers;
        let is_repeated = self.last.as_ref().is_some_and(|last| {
            last.reason == denial.reason
                && at_us.abs_diff(last.at_us) < LONGEST_REPEAT_US
                && last.ids.iter().eq(callers.iter().map(|caller| &caller.id))
        });
        if is_repeated {
            return;
        }
        let have_keys = callers.iter().all(|caller| caller.key.is_some());
        let last = || Last {
            ids: callers.iter().map(|caller| caller.id).collect(),
            reason: denial.reason,
            at_us,
        };
        self.last = (have_keys && !callers.is_empty()).then(last);
        let name = |caller: &DeniedCaller<'_>| caller.policy.clone();
        self.recent.push(Kept {
            at_us,
            reason: denial.reason,
            policies: callers
                .iter()
                .map(name)
                .zip(fingerprints.iter().copied())
                .collect(),
            retry_after: denial.retry_after,
            method: denial.method,
            route: denial.route.clone(),
        });
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
    #[cfg(feature = "admin")]
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
    use super::{DenialLists, Identity, PERIOD_US};
    use crate::{Key, policy_name::Name};

    /// Two threads read the time before and after the end of a period, and lock the lists in the
    /// other order.
    #[test]
    fn a_step_back_across_one_end_of_a_period_halves_once() {
        let mut lists = DenialLists::new();
        let period_us = 1_000_000 * PERIOD_US;
        lists.halve_until(period_us);
        for _ in 0..8 {
            lists.count_shadow(1, 0, || {
                let identity = Identity::new(&Key::from("ann"), None, None);
                (Name::new("api").unwrap(), identity)
            });
        }
        for us in [PERIOD_US, PERIOD_US - 1, PERIOD_US] {
            lists.halve_until(period_us + us);
            assert_eq!(lists.top().total, 4);
        }
    }
}
