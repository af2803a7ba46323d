//! The callers that are denied most, and the last denials.
//!
//! Each layer has a list of callers and a ring of denials, under one lock. Only denials write to
//! them, including those that a shadow policy would have made. No request waits for the lock: a
//! denial that finds it taken is only counted, as missed.

mod known;
mod lists;
mod recent;
mod space_saving;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
mod top;

use std::{
    fmt, slice,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use self::lists::DenialLists;
pub(crate) use self::{known::Identity, recent::Details};
pub use self::{
    recent::RecentDenial,
    top::{Offender, TopDenied},
};
use crate::Fingerprint;
use crate::{
    Clock, DenialReason, Key,
    clock::{self, SystemClock},
    policy_name::Name,
    util::{
        hash::SecretHasher,
        lock::{lock, try_lock},
    },
};

/// The denials of one layer.
pub(crate) struct Offenders {
    lists: Mutex<DenialLists>,
    /// How many denials are not in the lists, as another thread had the lock.
    missed: AtomicU64,
    hash: SecretHasher,
    clock: Arc<dyn Clock>,
}

/// A caller that a policy denied, or the policy that found no key.
pub(crate) struct DeniedCaller<'a> {
    pub(crate) policy: &'a Name,
    pub(crate) key: Option<&'a Key>,
    /// A secret hash of both. Its 64 bits are enough: one of a billion callers is taken for a
    /// listed one in a process of ten million.
    id: u64,
}

impl Offenders {
    /// Creates an empty list. Its times are those of the clock; default: the machine's.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        Arc::new(Self {
            lists: Mutex::new(DenialLists::new()),
            missed: AtomicU64::new(0),
            hash: SecretHasher::new(),
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
        })
    }

    /// `shadow`: whether the policy is a shadow policy, whose callers have a list of their own.
    fn id(&self, policy: &Name, shadow: bool, key: &Key) -> u64 {
        self.hash
            .hash_64(policy.hash, shadow.into(), key.as_bytes())
    }

    /// Returns a caller that a policy denied.
    pub(crate) fn caller<'a>(&self, policy: &'a Name, key: Option<&'a Key>) -> DeniedCaller<'a> {
        DeniedCaller {
            policy,
            key,
            id: key.map_or(0, |key| self.id(policy, false, key)),
        }
    }

    /// Records a denial. `decided_at_us`: when it was decided, if by the clock of the lists. The rows
    /// of denials in memory show what it saves not to read it again. `details`: what the ring has of
    /// it, too, unless it repeats the last one. `identify` is called for callers that are not listed,
    /// which is slow.
    pub(crate) fn record(
        &self,
        reason: DenialReason,
        decided_at_us: Option<u64>,
        callers: &[DeniedCaller<'_>],
        details: impl FnOnce() -> Details,
        identify: impl Fn(&DeniedCaller<'_>, &Key) -> Identity,
    ) {
        let at_us = decided_at_us.unwrap_or_else(|| clock::read(&*self.clock));
        let Some(mut lists) = self.lists_at(at_us) else {
            return;
        };
        let unlisted = lists.count(callers, at_us);
        if !unlisted.is_empty() {
            // The closure is the application's, and may read these lists.
            drop(lists);
            let identities = unlisted.iter().map(|(caller, key)| identify(caller, key));
            let identities: SmallVec<[Identity; 1]> = identities.collect();
            let Some(again) = self.lists_at(at_us) else {
                return;
            };
            lists = again;
            for ((caller, _), identity) in unlisted.into_iter().zip(identities) {
                lists.list(caller, false, identity, at_us);
            }
        }
        if !lists.repeats(reason, callers, at_us) {
            lists.remember(reason, callers, details(), at_us);
        }
    }

    /// Counts a caller that a shadow policy would have denied. `identify` is called if the caller
    /// is not listed.
    pub(crate) fn would_be_denied(
        &self,
        policy: &Name,
        key: &Key,
        identify: impl FnOnce() -> Identity,
    ) {
        let at_us = clock::read(&*self.clock);
        let caller = DeniedCaller {
            policy,
            key: Some(key),
            id: self.id(policy, true, key),
        };
        let Some(mut lists) = self.lists_at(at_us) else {
            return;
        };
        if !lists.count(slice::from_ref(&caller), at_us).is_empty() {
            drop(lists);
            let identity = identify();
            if let Some(mut lists) = self.lists_at(at_us) {
                lists.list(&caller, true, identity, at_us);
            }
        }
    }

    /// Returns the lists, with all counts halved that are due. `None` if another thread has them: then
    /// the denial is missed.
    fn lists_at(&self, now_us: u64) -> Option<MutexGuard<'_, DenialLists>> {
        let Some(mut lists) = try_lock(&self.lists) else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        lists.halve_until(now_us);
        Some(lists)
    }

    /// Returns the callers that were denied most.
    pub(crate) fn top(&self, most: usize) -> TopDenied {
        let now_us = clock::read(&*self.clock);
        let mut lists = lock(&self.lists);
        lists.halve_until(now_us);
        let all = lists.top();
        drop(lists);
        let missed = self.missed.load(Ordering::Relaxed);
        TopDenied::merge([TopDenied { missed, ..all }], most)
    }

    /// Returns the last denials, the latest first.
    pub(crate) fn recent(&self) -> Vec<RecentDenial> {
        lock(&self.lists).recent().collect()
    }

    /// Returns the denials since the last call, the latest first: those that the ring still has.
    /// `seen`: how many there had been at the last call, which this updates.
    pub(crate) fn recent_since(&self, seen: &mut u64) -> Vec<RecentDenial> {
        let lists = lock(&self.lists);
        let new = lists.recorded.saturating_sub(*seen);
        *seen = lists.recorded;
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        lists.recent().take(new).collect()
    }

    /// Returns the key of a listed caller, if it is kept: if the store finds no bucket by a fingerprint.
    pub(crate) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        lock(&self.lists).key_of(fingerprint)
    }
}

impl fmt::Debug for Offenders {
    /// Shows no caller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offenders").finish_non_exhaustive()
    }
}
