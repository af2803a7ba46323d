//! Where some of the threads record denials.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use smallvec::SmallVec;

use super::{
    DeniedCaller,
    known::{Identity, Known},
    recent::{Kept, Recent, time},
    repeats::Repeats,
    space_saving::SpaceSaving,
    top::{Offender, TopDenied},
};
use crate::{Clock, DenialReason, clock};
#[cfg(feature = "admin")]
use crate::{Fingerprint, Key};

/// How long until counts are halved. All processes halve at the same times.
const PERIOD_US: u64 = 600_000_000;

/// How long the time of a decision is continued before the clock is read again.
const LONGEST_WITHOUT_CLOCK_US: u64 = 1_000_000;

/// How long a denial stands for others of the same caller, in the ring.
const LONGEST_REPEAT_US: u64 = 1_000;

/// The denials of the threads that write here.
#[derive(Debug)]
pub(super) struct Place {
    callers: SpaceSaving<Known>,
    recent: Recent,
    /// What threads repeat, and how much of it the callers' counts have already.
    repeats: Vec<(Arc<Repeats>, u64)>,
    /// The number of the period that the counts are of.
    period: u64,
    /// When a store decided, by its clock (0: none did), and what this process's clock was then.
    decided_us: u64,
    then_us: u64,
    /// The last denial in the ring, if all its callers have keys: callers, reason and time.
    last: Option<(u64, DenialReason, u64)>,
}

impl Place {
    pub(super) fn new() -> Box<Mutex<Self>> {
        Box::new(Mutex::new(Self {
            callers: SpaceSaving::new(),
            recent: Recent::new(),
            repeats: Vec::new(),
            period: 0,
            decided_us: 0,
            then_us: 0,
            last: None,
        }))
    }

    /// Returns the time of a decision by the clock of this process, and halves the counts that
    /// are due.
    ///
    /// Reading a clock takes as long as all the rest. So for a second the clock of the store
    /// continues the time that was read last.
    #[inline]
    pub(super) fn begin(&mut self, decided_us: u64, clock: &dyn Clock) -> u64 {
        let apart_us = decided_us.abs_diff(self.decided_us);
        let is_known = decided_us > 0 && self.decided_us > 0;
        let now_us = if !is_known || apart_us >= LONGEST_WITHOUT_CLOCK_US {
            self.then_us = clock::read(clock);
            self.decided_us = decided_us;
            self.then_us
        } else if decided_us >= self.decided_us {
            self.then_us + apart_us
        } else {
            self.then_us.saturating_sub(apart_us)
        };
        self.take_repeats();
        self.advance(now_us);
        now_us
    }

    /// Adds to the counts what threads have repeated since. Before counts are halved, and before
    /// a caller may lose its entry.
    #[inline]
    fn take_repeats(&mut self) {
        if !self.repeats.is_empty() {
            let callers = &mut self.callers;
            self.repeats.retain_mut(|(repeats, taken)| {
                // Asked before the count is read. No thread adds any more.
                let has_ended = Arc::get_mut(repeats).is_some();
                let (count, last_us) = repeats.read();
                let times = count - mem::replace(taken, count);
                for (id, known) in repeats.callers.iter().filter(|_| times > 0) {
                    if callers.count_listed(*id, times, last_us).is_none() {
                        callers.count(*id, times, last_us, known.clone());
                    }
                }
                !has_ended
            });
        }
    }

    /// Halves the counts once for each period that has passed.
    fn advance(&mut self, now_us: u64) {
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

    /// Counts the callers that are listed, and notes their fingerprints. Returns whether all
    /// are listed.
    #[inline]
    pub(super) fn count_listed(&mut self, callers: &[DeniedCaller<'_>], denial: &mut Kept) -> bool {
        let mut are_listed = true;
        for (caller, (_, fingerprint)) in callers.iter().zip(&mut denial.policies) {
            if caller.key.is_some() {
                let known = self.callers.count_listed(caller.id, 1, denial.at_us);
                *fingerprint = known.map(|known| known.identity.fingerprint);
                are_listed &= fingerprint.is_some();
            }
        }
        are_listed
    }

    /// Counts the callers that have an identity, and lists them.
    pub(super) fn count(
        &mut self,
        callers: &[DeniedCaller<'_>],
        identities: impl Iterator<Item = Option<Identity>>,
        denial: &mut Kept,
    ) {
        let places = callers.iter().zip(identities).zip(&mut denial.policies);
        for ((caller, identity), (policy, fingerprint)) in places {
            if let Some(identity) = identity {
                *fingerprint = Some(identity.fingerprint);
                let policy = policy.clone();
                let known = Known { policy, identity };
                self.callers.count(caller.id, 1, denial.at_us, known);
            }
        }
    }

    /// Counts callers that are denied again, if the last denial in the ring stands for this one.
    /// Returns for how long it does, from now on.
    pub(super) fn count_again(
        &mut self,
        ids: &[u64],
        reason: DenialReason,
        now_us: u64,
    ) -> Option<u64> {
        let (last, why, at_us) = self.last?;
        // All are counted, or none.
        if last != id_of_all(ids.iter().copied())
            || why != reason
            || now_us.abs_diff(at_us) >= LONGEST_REPEAT_US
            || ids.iter().any(|id| self.callers.listed(*id).is_none())
        {
            return None;
        }
        for id in ids {
            self.callers.count_listed(*id, 1, now_us);
        }
        let left_us = (at_us + LONGEST_REPEAT_US).saturating_sub(now_us);
        Some(left_us.min(LONGEST_REPEAT_US))
    }

    /// Returns what counts these callers, while a thread repeats their denial.
    pub(super) fn repeats(&mut self, ids: &[u64], now_us: u64) -> Option<Arc<Repeats>> {
        let known = |id: &u64| Some((*id, self.callers.listed(*id)?.clone()));
        let callers: Option<SmallVec<_>> = ids.iter().map(known).collect();
        let repeats = Repeats::new(callers?, now_us);
        self.repeats.push((Arc::clone(&repeats), 0));
        Some(repeats)
    }

    #[inline]
    pub(super) fn push(&mut self, callers: &[DeniedCaller<'_>], denial: Kept) {
        let have_keys = callers.iter().all(|caller| caller.key.is_some());
        let all = id_of_all(callers.iter().map(|caller| caller.id));
        let last = have_keys.then_some((all, denial.reason, denial.at_us));
        self.last = last.filter(|_| !callers.is_empty());
        self.recent.push(denial);
    }

    /// Returns the callers, with all their counts halved that are due.
    pub(super) fn top(&mut self, now_us: u64) -> TopDenied {
        self.take_repeats();
        self.advance(now_us);
        let offenders = self.callers.entries().iter().map(|entry| Offender {
            policy: entry.caller.policy.text.to_string(),
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
        }
    }

    /// Returns the key of a listed caller, if it is kept.
    #[cfg(feature = "admin")]
    pub(super) fn key_of(&self, fingerprint: Fingerprint) -> Option<Key> {
        let mut callers = self.callers.entries().iter();
        callers.find_map(|entry| {
            let identity = &entry.caller.identity;
            let key = identity.key.as_deref();
            let key = key.filter(|_| identity.fingerprint == fingerprint);
            key.map(Key::of_bytes)
        })
    }

    pub(super) fn recent(&self) -> impl Iterator<Item = &Kept> {
        self.recent.latest()
    }

    /// Returns how many denials there were, with those that are not kept any longer.
    #[cfg(feature = "admin")]
    pub(super) const fn recent_count(&self) -> u64 {
        self.recent.count()
    }
}

/// Returns an id of several callers in this order: that of the caller, if it is one.
#[inline]
fn id_of_all(ids: impl Iterator<Item = u64>) -> u64 {
    ids.fold(0, |all, id| all.rotate_left(1) ^ id)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::{Identity, Known, PERIOD_US, Place};
    use crate::{Clock, Fingerprint, Key, ManualClock, policy_name::Name};

    /// A store has another clock than this process. Between two readings of ours, its clock tells
    /// how much time has passed.
    #[test]
    fn times_are_those_of_this_process_whatever_the_clock_of_the_store_says() {
        let clock = ManualClock::new();
        let start = clock.now_us();
        let place = Place::new();
        let mut place = place.lock().unwrap();
        for decided_us in [
            5,
            start + 3_600_000_000,
            u64::MAX,
            u64::MAX - 2_000_000,
            0,
            0,
        ] {
            assert_eq!(place.begin(decided_us, &clock), clock.now_us());
            clock.advance(Duration::from_millis(100));
        }
        let begin = clock.now_us();
        assert_eq!(place.begin(10_000_000, &clock), begin);
        clock.advance(Duration::from_millis(700));
        // Checks that arrive out of order.
        for (decided_us, passed_us) in [(400_000, 400_000), (200_000, 200_000), (900_000, 900_000)]
        {
            let now_us = place.begin(10_000_000 + decided_us, &clock);
            assert_eq!(now_us, begin + passed_us);
        }
        assert_eq!(place.begin(9_900_000, &clock), begin - 100_000);
        assert_eq!(place.begin(11_000_000, &clock), begin + 700_000);
    }

    /// Two threads read the time before and after the end of a period, and lock the place in the
    /// other order.
    #[test]
    fn a_step_back_across_one_end_of_a_period_halves_once() {
        let clock = ManualClock::new();
        let place = Place::new();
        let mut place = place.lock().unwrap();
        let at = |us: u64| {
            clock.set_us(1_000_000 * PERIOD_US + us);
            &clock
        };
        place.begin(0, at(0));
        let known = Known {
            policy: Name::new("api").unwrap(),
            identity: Identity::new(Fingerprint::from(&Key::from("ann")), None),
        };
        place.callers.count(1, 1, 0, known);
        for _ in 1..8 {
            place.callers.count_listed(1, 1, 0);
        }
        for us in [PERIOD_US, PERIOD_US - 1, PERIOD_US] {
            place.begin(0, at(us));
            assert_eq!(place.callers.total(), 4);
        }
    }
}
