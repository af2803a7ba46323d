//! The callers that are denied most, and the last denials.
//!
//! Each layer has a list of callers and a ring of denials, under one lock. Only denials write to
//! them, including those that a shadow policy would have made. No request waits for the lock: a
//! denial that finds it taken is only counted, as missed.

mod lists;
mod recent;
mod space_saving;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
mod top;

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use self::lists::DenialLists;
pub(crate) use self::space_saving::Known;
pub use self::{
    recent::RecentDenial,
    top::{Offender, TopDenied},
};
use crate::{
    Clock, DenialReason, Fingerprint, Key,
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
    pub(crate) key: Option<Cow<'a, Key>>,
    /// Whether it is a shadow policy, whose callers have entries of their own.
    shadow: bool,
    /// A secret hash of all. Its 64 bits are enough: one of a billion callers is taken for a
    /// listed one in a process of ten million.
    id: u64,
}

impl Offenders {
    /// Creates an empty list. Its times are those of the clock; default: the machine's.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        Arc::new(Self {
            lists: Mutex::default(),
            missed: AtomicU64::new(0),
            hash: SecretHasher::default(),
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
        })
    }

    /// Returns a caller that a policy denied. `shadow`: it is a shadow policy.
    pub(crate) fn caller<'a>(
        &self,
        policy: &'a Name,
        shadow: bool,
        key: Option<Cow<'a, Key>>,
    ) -> DeniedCaller<'a> {
        let hash = |key: &Key| {
            self.hash
                .hash_64(policy.hash, shadow.into(), key.as_bytes())
        };
        DeniedCaller {
            policy,
            shadow,
            id: key.as_deref().map_or(0, hash),
            key,
        }
    }

    /// Records a denial. `decided_at_us`: when it was decided, if by the clock of the lists. The rows
    /// of denials in memory show what it saves not to read it again. `details`: what the ring has of
    /// it, unless it repeats the last one. `identify`: see [`count`](Self::count).
    pub(crate) fn record(
        &self,
        reason: DenialReason,
        decided_at_us: Option<u64>,
        callers: &[DeniedCaller<'_>],
        details: impl FnOnce() -> RecentDenial,
        identify: impl Fn(&DeniedCaller<'_>, &Key) -> Known,
    ) {
        let at_us = decided_at_us.unwrap_or_else(|| clock::read(&*self.clock));
        if let Some(mut lists) = self.count(callers, at_us, identify) {
            if !lists.repeats(reason, callers, at_us) {
                lists.remember(callers, details(), at_us);
            }
        }
    }

    /// Counts a caller that a shadow policy would have denied.
    pub(crate) fn would_be_denied(
        &self,
        caller: DeniedCaller<'_>,
        identify: impl Fn(&DeniedCaller<'_>, &Key) -> Known,
    ) {
        let at_us = clock::read(&*self.clock);
        drop(self.count(&[caller], at_us, identify));
    }

    /// Counts callers. `identify` is called for those that are not listed, which is slow. `None` if
    /// another thread has the lists.
    fn count(
        &self,
        callers: &[DeniedCaller<'_>],
        at_us: u64,
        identify: impl Fn(&DeniedCaller<'_>, &Key) -> Known,
    ) -> Option<MutexGuard<'_, DenialLists>> {
        let mut lists = self.lists_at(at_us)?;
        let with_key = callers
            .iter()
            .filter_map(|caller| Some((caller, caller.key.as_deref()?)));
        let unlisted = with_key.filter(|(caller, _)| !lists.callers.count_listed(caller.id, at_us));
        let unlisted: SmallVec<[_; 1]> = unlisted.collect();
        if unlisted.is_empty() {
            return Some(lists);
        }
        // The closure is the application's, and may read these lists.
        drop(lists);
        let known = unlisted
            .into_iter()
            .map(|(caller, key)| (caller.id, identify(caller, key)));
        let known: SmallVec<[(u64, Known); 1]> = known.collect();
        let mut lists = self.lists_at(at_us)?;
        for (id, known) in known {
            lists.callers.count(id, at_us, known);
        }
        Some(lists)
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
        lock(&self.lists).recent()
    }

    /// Returns the key of a listed caller, if it is kept: if the store finds no bucket by a fingerprint.
    pub(crate) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        lock(&self.lists).key_of(fingerprint)
    }
}
