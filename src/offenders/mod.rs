//! The callers that are denied most, and the last denials.
//!
//! Each layer has a list of callers and a ring of denials. Only denials write to them. Threads
//! that deny at the same time write to places of their own, which are merged when the
//! application reads them: one lock for all threads would slow down each denial.

mod known;
mod place;
mod recent;
mod repeats;
mod space_saving;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
mod top;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

pub(crate) use self::{known::Identity, recent::Route};
use self::{place::Place, recent::Kept, repeats::Compared};
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
        thread_number::own_number,
    },
};

/// How many threads can write at the same time without waiting.
const PLACES: usize = 8;

/// The denials of one layer.
pub(crate) struct Offenders {
    /// The number of this list, which no other one of the process has or had.
    number: usize,
    /// Each is made when a thread first denies there: 40 KB.
    places: [OnceLock<Box<Mutex<Place>>>; PLACES],
    hash: SecretHasher,
    clock: Arc<dyn Clock>,
}

/// How many denials each place had when a reader last looked: it sees each denial once.
#[cfg(feature = "admin")]
#[derive(Debug, Default)]
pub(crate) struct Mark([u64; PLACES]);

/// A denial that is to be recorded.
pub(crate) struct NewDenial<'a> {
    pub(crate) reason: DenialReason,
    /// When the store decided, by its clock; 0 if it did not.
    pub(crate) decided_at_us: u64,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) method: Option<&'static str>,
    pub(crate) route: Option<Route>,
    pub(crate) callers: SmallVec<[DeniedCaller<'a>; 1]>,
}

/// A caller that a policy denied, or the policy that found no key.
pub(crate) struct DeniedCaller<'a> {
    pub(crate) policy: Name,
    pub(crate) key: Option<&'a Key>,
    /// A secret hash of both. Its 64 bits are enough: one of a billion callers is taken for a
    /// listed one in a process of ten million.
    id: u64,
}

impl Offenders {
    /// Creates an empty list. Its times are those of the clock; default: the machine's.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);

        Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            places: [const { OnceLock::new() }; PLACES],
            hash: SecretHasher::new(),
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
        })
    }

    #[inline]
    fn id(&self, policy: &Name, key: &[u8]) -> u64 {
        self.hash.hash_64(policy.hash, 0, key)
    }

    /// Counts a denial, if this thread remembers that it repeats the last one. `callers`: the hash
    /// that its decision tells.
    #[inline]
    pub(crate) fn count_remembered(
        &self,
        callers: u32,
        reason: DenialReason,
        decided_us: u64,
    ) -> bool {
        self.repeated(callers, reason, decided_us).count()
    }

    /// Counts a denial, if it repeats the last one within a millisecond: the same policies denied
    /// the same callers for the same reason. Returns `false` if it is another, which is to be
    /// recorded. `denied`: the policies, each with the key of its caller.
    ///
    /// A client that does not slow down would fill the ring with itself. And most denials of a
    /// flood cost less in this way.
    pub(crate) fn count_again<'a>(
        &self,
        callers: u32,
        reason: DenialReason,
        decided_us: u64,
        denied: impl Iterator<Item = (&'a Name, Option<&'a Key>)>,
    ) -> bool {
        let mut ids: SmallVec<[u64; 4]> = SmallVec::new();
        for (policy, key) in denied {
            let Some(key) = key else {
                return false;
            };
            ids.push(self.id(policy, key.as_bytes()));
        }
        let mut place = self.place();
        let now_us = place.begin(decided_us, &*self.clock);
        let Some(left_us) = place.count_again(&ids, reason, now_us) else {
            return false;
        };
        if callers > 0 {
            let repeats = place.repeats(&ids, now_us);
            drop(place);
            if let Some(repeats) = repeats {
                let denial = self.repeated(callers, reason, decided_us);
                denial.remember(now_us, left_us, repeats);
            }
        }
        true
    }

    const fn repeated(&self, callers: u32, reason: DenialReason, decided_us: u64) -> Compared {
        Compared {
            list: self.number,
            callers,
            reason,
            decided_us,
        }
    }

    /// Returns a caller whom a policy denied.
    #[inline]
    pub(crate) fn caller<'a>(&self, policy: Name, key: Option<&'a Key>) -> DeniedCaller<'a> {
        let bytes = key.map_or(&[][..], Key::as_bytes);
        DeniedCaller {
            id: self.id(&policy, bytes),
            policy,
            key,
        }
    }

    /// Records a denial. `identify` is called for callers that are not listed, which is slow.
    pub(crate) fn record(
        &self,
        denial: NewDenial<'_>,
        identify: impl Fn(&DeniedCaller<'_>, &Key) -> Identity,
    ) {
        repeats::forget(self.number);
        let callers = denial.callers;
        let without_fingerprint = |caller: &DeniedCaller<'_>| (caller.policy.clone(), None);
        let mut kept = Kept {
            at_us: 0,
            reason: denial.reason,
            policies: callers.iter().map(without_fingerprint).collect(),
            retry_after: denial.retry_after,
            method: denial.method,
            route: denial.route,
        };
        let mut place = self.place();
        kept.at_us = place.begin(denial.decided_at_us, &*self.clock);
        if !place.count_listed(&callers, &mut kept) {
            // The closure is the application's, and may read these lists.
            drop(place);
            let identify =
                |(caller, (_, counted)): (&DeniedCaller<'_>, &(Name, Option<Fingerprint>))| {
                    let key = caller.key.filter(|_| counted.is_none());
                    key.map(|key| identify(caller, key))
                };
            let identities = callers.iter().zip(&kept.policies).map(identify);
            let identities: SmallVec<[Option<Identity>; 1]> = identities.collect();
            place = self.place();
            kept.at_us = place.begin(denial.decided_at_us, &*self.clock);
            place.count(&callers, identities.into_iter(), &mut kept);
        }
        place.push(&callers, kept);
    }

    /// Locks a place that is free. No denial is lost: if all are taken, the thread waits for its
    /// own.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a remainder is below the length")]
    fn place(&self) -> MutexGuard<'_, Place> {
        let own = self.places[own_number() % PLACES].get_or_init(Place::new);
        try_lock(own).unwrap_or_else(|| self.other_place(own))
    }

    #[cold]
    fn other_place<'a>(&'a self, own: &'a Mutex<Place>) -> MutexGuard<'a, Place> {
        let mut others = self.places.iter().filter_map(OnceLock::get);
        let free = others.find_map(|other| try_lock(other));
        free.unwrap_or_else(|| lock(own))
    }

    /// Returns the callers that were denied most.
    pub(crate) fn top(&self, most: usize) -> TopDenied {
        let now_us = clock::read(&*self.clock);
        let places = self.places.iter().filter_map(OnceLock::get);
        TopDenied::merge(places.map(|place| lock(place).top(now_us)), most)
    }

    /// Returns the denials since the last call with this mark, the latest first: at most this many,
    /// and those that the rings still have.
    #[cfg(feature = "admin")]
    pub(crate) fn recent_since(&self, mark: &mut Mark, most: usize) -> Vec<RecentDenial> {
        let mut all = Vec::new();
        for (place, known) in self.places.iter().zip(&mut mark.0) {
            let Some(place) = place.get() else {
                continue;
            };
            let place = lock(place);
            let count = place.recent_count();
            let new = usize::try_from(count.saturating_sub(*known)).unwrap_or(usize::MAX);
            *known = count;
            all.extend(place.recent().take(new.min(most)).cloned());
        }
        let mut merged = recent::merge(all);
        merged.truncate(most);
        merged
    }

    /// Returns the key of a caller that was denied, if it is kept: if the store finds no bucket by a
    /// fingerprint, and the caller is still listed.
    #[cfg(feature = "admin")]
    pub(crate) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        let mut places = self.places.iter().filter_map(OnceLock::get);
        places.find_map(|place| lock(place).key_of(fingerprint))
    }

    /// Returns the last denials, the latest first.
    pub(crate) fn recent(&self) -> Vec<RecentDenial> {
        let mut all = Vec::new();
        for place in self.places.iter().filter_map(OnceLock::get) {
            all.extend(lock(place).recent().cloned());
        }
        recent::merge(all)
    }
}

impl fmt::Debug for Offenders {
    /// Shows no caller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offenders").finish_non_exhaustive()
    }
}
