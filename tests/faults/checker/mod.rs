//! Judges ledgers afterwards: the invariants that every row of the fault matrix keeps. Each
//! function returns what it found, or how the invariant was broken.

mod admitted;
mod most_needed;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::prelude::*;

pub(crate) use self::admitted::{Elsewhere, Promise, Window, admitted};
use crate::ledger::{Entry, Outcome};

/// How long requests took, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "there was no request");
        times.sort_unstable();
        Self(times)
    }

    /// Returns the time that this share of the requests did not exceed.
    pub(crate) fn of_share(&self, share: f64) -> Duration {
        let count = (self.0.len() as f64 * share).ceil() as usize;
        self.0[count.max(1) - 1]
    }

    /// Returns the share of the requests that took longer.
    pub(crate) fn share_above(&self, bound: Duration) -> f64 {
        let within = self.0.partition_point(|time| *time <= bound);
        (self.0.len() - within) as f64 / self.0.len() as f64
    }
}

/// I2: every request is answered. Returns after which times.
pub(crate) fn answered(ledger: &[Entry]) -> Result<Times, String> {
    let lost = |entry: &&Entry| entry.outcome == Outcome::Unanswered;
    if let Some(entry) = ledger.iter().find(lost) {
        let count = ledger.iter().filter(lost).count();
        return Err(format!("I2: {count} without an answer, such as {entry:?}"));
    }
    if ledger.is_empty() {
        return Err("I2: there was no request".to_owned());
    }
    let took = |entry: &Entry| Duration::from_micros(entry.took_us());
    Ok(Times::new(ledger.iter().map(took).collect()))
}

/// I4: no caller gets the decision of another bucket. What remains for key k must be in its own
/// band, of `width` below `highest - k * width`. Returns how many decisions had a number.
pub(crate) fn own_bands(ledger: &[Entry], highest: u64, width: u64) -> Result<usize, String> {
    let reported = ledger
        .iter()
        .filter_map(|entry| Some((entry, entry.remaining?)));
    let mut count = 0;
    for (entry, remaining) in reported {
        let below = highest - u64::from(entry.key) * width;
        if remaining > below || remaining + width <= below {
            return Err(format!("I4: got the number of another bucket: {entry:?}"));
        }
        count += 1;
    }
    if count == 0 {
        return Err("I4: no decision had a number".to_owned());
    }
    Ok(count)
}

/// The same if nothing refills and nothing is lost: then no two admitted callers get the same
/// number.
pub(crate) fn own_replies(ledger: &[Entry], highest: u64, width: u64) -> Result<usize, String> {
    own_bands(ledger, highest, width)?;
    let mut reported = HashSet::new();
    for entry in ledger {
        let Some(remaining) = entry.remaining else {
            continue;
        };
        if entry.outcome.is_allowed() && !reported.insert((entry.key, remaining)) {
            return Err(format!("I4: got the same number as another: {entry:?}"));
        }
    }
    if reported.is_empty() {
        return Err("I4: no request was admitted".to_owned());
    }
    Ok(reported.len())
}

/// I5: each request that the store admitted is charged there. Only requests without a reply may
/// be charged in addition. `charges` is what the store has taken of each key. Returns the
/// surplus.
pub(crate) fn charged(
    ledger: &[Entry],
    charges: &HashMap<u32, u64>,
    attempts: u64,
) -> Result<u64, String> {
    // For each key: the certain charges, and the possible ones.
    let mut expected: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for entry in ledger {
        let (sure, perhaps) = expected.entry(entry.key).or_default();
        let cost = u64::from(entry.cost);
        if entry.outcome.is_by_store() && entry.outcome.is_allowed() {
            *sure += cost;
        } else if entry.outcome.lacks_reply() {
            *perhaps += cost * attempts;
        }
    }
    let mut surplus = 0;
    for (key, (sure, perhaps)) in &expected {
        let charge = charges.get(key).copied().unwrap_or(0);
        if charge < *sure {
            return Err(format!("I5: key {key} was charged {charge} for {sure}"));
        }
        if charge > sure + perhaps {
            return Err(format!(
                "I5: key {key} was charged {charge} for {sure}, and at most {perhaps} more"
            ));
        }
        surplus += charge - sure;
    }
    if expected.is_empty() {
        return Err("I5: there was no request".to_owned());
    }
    Ok(surplus)
}

/// I6: in every process, the store decides again after the fault ended. Returns the longest time
/// that took.
pub(crate) fn resumed(ledger: &[Entry], ended_us: u64) -> Result<Duration, String> {
    let processes: HashSet<u8> = ledger.iter().map(|entry| entry.process).collect();
    let mut longest = Duration::ZERO;
    for process in processes.iter().copied() {
        let after = ledger
            .iter()
            .filter(|entry| entry.process == process && entry.sent_us >= ended_us);
        let first = after
            .filter(|entry| entry.outcome.is_by_store())
            .map(|entry| entry.answered_us)
            .min();
        let Some(first) = first else {
            return Err(format!("I6: the store never decided again for {process}"));
        };
        longest = longest.max(Duration::from_micros(first - ended_us));
    }
    if processes.is_empty() {
        return Err("I6: there was no request".to_owned());
    }
    Ok(longest)
}

/// I7: nothing panicked, and nothing hangs.
pub(crate) fn nothing_broke(ledger: &[Entry]) -> Result<(), String> {
    let broken = |entry: &&Entry| matches!(entry.outcome, Outcome::Panicked | Outcome::Unanswered);
    match ledger.iter().find(broken) {
        Some(entry) => Err(format!("I7: {entry:?}")),
        None => Ok(()),
    }
}

/// Counts each outcome.
pub(crate) fn outcomes(ledger: &[Entry]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in ledger {
        *counts.entry(entry.outcome.to_string()).or_default() += 1;
    }
    counts
}
