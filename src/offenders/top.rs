//! The callers that are denied most, as an application reads them.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
    time::SystemTime,
};

use crate::Fingerprint;

/// A caller that a policy often denies, in a list of [`TopDenied`].
///
/// All fields are public, so that an application can send it to another process, in any format,
/// and make it again there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// The policy that denied.
    pub policy: String,
    /// Whether it was a [shadow policy](crate::Policy::shadow) then, which would have denied. The
    /// requests went on.
    pub shadow: bool,
    /// The hash of the caller's key.
    pub fingerprint: Fingerprint,
    /// How often this policy denied this caller, halved every ten minutes: at most so often, if no
    /// denial was [missed](TopDenied::missed), and [at least](Self::at_least) `count - error` times.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
    /// When the policy last denied the caller, by the clock of the process.
    pub last_seen: SystemTime,
    /// The name of the caller by [`name_offenders`](crate::RateLimitLayerBuilder::name_offenders).
    pub name: Option<String>,
}

/// The callers that a layer denies most, from
/// [`RateLimitLayer::top_denied`](crate::RateLimitLayer::top_denied), and those that its shadow
/// policies would deny.
///
/// Memory is bounded, so the counts are estimates with a stated error. A caller that is not
/// listed was denied at most [`unlisted`](Self::unlisted) times. All counts are halved every ten
/// minutes, so an old attack makes room for a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopDenied {
    /// The callers, those first that were denied most for [certain](Offender::at_least).
    pub offenders: Vec<Offender>,
    /// The most denials of any caller that is not in `offenders`, by one policy.
    pub unlisted: u64,
    /// All denials by a policy, of listed and other callers, halved in the same way. A request
    /// that two policies deny counts twice. Without those [missed](Self::missed): with four threads
    /// that only deny, in memory, one in six.
    pub total: u64,
    /// How many requests since the process started have a denial that was not counted, because
    /// another thread was writing to the list or reading it just then. Never halved.
    pub missed: u64,
}

impl TopDenied {
    /// Merges the lists of several layers or processes, and keeps the `most` callers that were denied
    /// most.
    ///
    /// Counts and errors are added. A list without a caller may have counted it up to its
    /// `unlisted` times, so that is added to both. So a count in the result is, again, at most
    /// the true count and its `error`, and at least the true count, if none was missed. If no list
    /// was cut short, `unlisted` and each `error` are at most a 128th of `total`, apart from the
    /// rounding of halves.
    ///
    /// Lists of processes match if their stores make the same [`Fingerprint`]s.
    ///
    /// ```
    /// use std::time::UNIX_EPOCH;
    /// use tower_throttle::{Fingerprint, Key, Offender, TopDenied};
    ///
    /// let denied = |caller: &str, count| Offender {
    ///     policy: "login".into(),
    ///     shadow: false,
    ///     fingerprint: Fingerprint::from(&Key::from(caller)),
    ///     count,
    ///     error: 0,
    ///     last_seen: UNIX_EPOCH,
    ///     name: None,
    /// };
    /// let one = TopDenied { offenders: vec![denied("ann", 90)], unlisted: 0, total: 90, missed: 0 };
    /// let offenders = vec![denied("bob", 70), denied("ann", 20)];
    /// let other = TopDenied { offenders, unlisted: 3, total: 100, missed: 0 };
    ///
    /// let fleet = TopDenied::merge([one, other], 20);
    /// let counts: Vec<u64> = fleet.offenders.iter().map(|offender| offender.count).collect();
    /// assert_eq!(counts, [110, 70]); // ann, bob
    /// assert_eq!((fleet.unlisted, fleet.total), (3, 190));
    /// ```
    #[must_use]
    pub fn merge(lists: impl IntoIterator<Item = Self>, most: usize) -> Self {
        let mut merged = Self::default();
        // Each caller, with the `unlisted` of the lists that have it.
        let mut callers: HashMap<(String, bool, Fingerprint), (Offender, u64)> = HashMap::new();
        for list in lists {
            merged.unlisted = merged.unlisted.saturating_add(list.unlisted);
            merged.total = merged.total.saturating_add(list.total);
            merged.missed = merged.missed.saturating_add(list.missed);
            for offender in list.offenders {
                let caller = (
                    offender.policy.clone(),
                    offender.shadow,
                    offender.fingerprint,
                );
                match callers.entry(caller) {
                    Entry::Vacant(caller) => {
                        caller.insert((offender, list.unlisted));
                    }
                    Entry::Occupied(mut caller) => {
                        let (known, listed) = caller.get_mut();
                        known.add(offender);
                        *listed = listed.saturating_add(list.unlisted);
                    }
                }
            }
        }
        let offenders = callers.into_values().map(|(mut offender, listed)| {
            let elsewhere = merged.unlisted.saturating_sub(listed);
            offender.count = offender.count.saturating_add(elsewhere);
            offender.error = offender.error.saturating_add(elsewhere);
            offender
        });
        merged.offenders = offenders.collect();
        merged.cut(most);
        merged
    }

    /// Sorts the callers, and keeps the first of them.
    fn cut(&mut self, most: usize) {
        self.offenders.sort_by_cached_key(|one| {
            let rank = Reverse((one.at_least(), one.count, one.last_seen));
            (rank, one.fingerprint, one.shadow, one.policy.clone())
        });
        let cut = self.offenders.drain(most.min(self.offenders.len())..);
        let highest = cut.map(|offender| offender.count).max();
        self.unlisted = self.unlisted.max(highest.unwrap_or(0));
    }
}

impl Offender {
    /// Returns how often the policy denied the caller for certain: `count - error`.
    pub const fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.error = self.error.saturating_add(other.error);
        self.last_seen = self.last_seen.max(other.last_seen);
        self.name = self.name.take().or(other.name);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::{Offender, TopDenied};
    use crate::{Fingerprint, Key, offenders::recent::time};

    fn denied(count: u64, error: u64, last_us: u64, name: Option<&str>) -> Offender {
        Offender {
            policy: "api".into(),
            shadow: false,
            fingerprint: Fingerprint::from(&Key::from("ann")),
            count,
            error,
            last_seen: time(last_us),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_merge_saturates_and_takes_a_caller_that_is_listed_twice() {
        let offender = denied(u64::MAX, 7, 1, None);
        let list = TopDenied {
            offenders: vec![offender.clone(), offender],
            unlisted: u64::MAX,
            total: u64::MAX,
            missed: u64::MAX,
        };
        let merged = TopDenied::merge([list.clone(), list, TopDenied::default()], 1);
        let sums = (merged.unlisted, merged.total, merged.missed);
        assert_eq!(sums, (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!(merged.offenders[0].count, u64::MAX);
        assert_eq!(merged.offenders.len(), 1);
    }

    /// Denials of a caller that one list does not have are in its `unlisted`.
    #[test]
    fn a_merge_adds_what_each_list_knows_of_a_caller() {
        let list = |offenders: Vec<Offender>, unlisted| TopDenied {
            offenders,
            unlisted,
            total: 100,
            missed: 1,
        };
        let lists = [
            list(vec![denied(20, 1, 7, None)], 5),
            list(vec![denied(30, 2, 9, Some("Ann"))], 6),
            list(vec![denied(10, 0, 8, Some("Anne"))], 7),
            list(Vec::new(), 3),
        ];
        let merged = TopDenied::merge(lists, 20);
        assert_eq!(merged.offenders, [denied(63, 6, 9, Some("Ann"))]);
        assert_eq!((merged.unlisted, merged.total, merged.missed), (21, 400, 4));
    }
}
