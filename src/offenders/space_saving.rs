//! Which of many callers are counted most, in a fixed number of entries (Metwally, Agrawal and
//! El Abbadi, 2005: Space-Saving).
//!
//! A caller that is listed has an entry, which counts. A caller that is not listed takes the
//! entry with the lowest count: it may have been counted so often before, so that count is the
//! error of the new entry. So the true count of a listed caller is between `count - error` and
//! `count`, and that of any other caller is at most `floor`. As each unit raises one count by
//! one, `floor` is at most the total divided by the number of entries.

use std::time::UNIX_EPOCH;

use super::{DeniedCaller, recent::time, top::Offender};
use crate::{
    Fingerprint, Key,
    policy_name::Name,
    util::{hash::HashedMap, text::plain_text},
};

/// The most callers that are listed.
pub(super) const ENTRIES: usize = 128;

/// The callers with the most counts, by an id: a hash that no client can predict.
#[derive(Debug, Default)]
pub(super) struct SpaceSaving {
    pub(super) entries: HashedMap<u64, Known>,
    /// The most that a caller without an entry can have been counted. No count is lower.
    pub(super) floor: u64,
    /// All counts together.
    pub(super) total: u64,
}

/// A listed caller.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) policy: Name,
    /// Its `policy` is empty until it is read.
    pub(super) offender: Offender,
    /// The bytes of the key, if the store finds no bucket by a fingerprint.
    pub(super) key: Option<Box<[u8]>>,
}

impl Known {
    /// `stored`: the fingerprint in the name of the caller's bucket, if the store's names have one. If
    /// they have none, the key is kept, unless it is long: a list of long ones would take much memory.
    pub(crate) fn new(
        caller: &DeniedCaller<'_>,
        key: &Key,
        stored: Option<Fingerprint>,
        name: Option<String>,
    ) -> Self {
        const MOST_BYTES: usize = 256;
        let bytes = Some(key.as_bytes()).filter(|bytes| bytes.len() <= MOST_BYTES);
        Self {
            policy: caller.policy.clone(),
            offender: Offender {
                policy: String::new(),
                shadow: caller.shadow,
                fingerprint: stored.unwrap_or_else(|| Fingerprint::from(key)),
                count: 0,
                error: 0,
                last_seen: UNIX_EPOCH,
                name: name.map(|name| bounded(&name)),
            },
            key: bytes.filter(|_| stored.is_none()).map(Box::from),
        }
    }
}

/// Returns a name as it is kept.
fn bounded(name: &str) -> String {
    const MOST_BYTES: usize = 64;
    let mut bounded: String = plain_text(name).chars().take(MOST_BYTES).collect();
    while bounded.len() > MOST_BYTES {
        bounded.pop();
    }
    bounded
}

impl SpaceSaving {
    /// Counts a caller, if it is listed. Returns whether it is.
    pub(super) fn count_listed(&mut self, id: u64, now_us: u64) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.is_some_and(|Known { offender, .. }| {
            offender.count += 1;
            offender.last_seen = offender.last_seen.max(time(now_us));
            self.total += 1;
            true
        })
    }

    /// Counts a caller, and lists it.
    pub(super) fn count(&mut self, id: u64, now_us: u64, mut caller: Known) {
        if self.count_listed(id, now_us) {
            return;
        }
        if self.entries.len() == ENTRIES {
            let counts = self.entries.iter();
            let counts = counts.map(|(id, known)| (known.offender.count, *id));
            if let Some((count, former)) = counts.min_by_key(|(count, _)| *count) {
                self.entries.remove(&former);
                self.floor = count;
            }
        }
        (caller.offender.count, caller.offender.error) = (self.floor + 1, self.floor);
        caller.offender.last_seen = time(now_us);
        self.entries.insert(id, caller);
        self.total += 1;
    }

    /// Halves all counts this many times, rounded down. Errors are rounded up: the true counts,
    /// each halved and rounded down in the same way, stay within them.
    pub(super) fn halve(&mut self, times: u32) {
        let down = |count: u64| count.checked_shr(times).unwrap_or(0);
        let up = |count: u64| down(count) + u64::from(down(count) << times.min(63) != count);
        self.entries.retain(|_, Known { offender, .. }| {
            offender.count = down(offender.count);
            offender.error = up(offender.error).min(offender.count);
            offender.count > 0
        });
        self.floor = down(self.floor);
        self.total = down(self.total);
    }
}
