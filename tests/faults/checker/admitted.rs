//! I1: how much was admitted.

use super::most_needed::{Taken, most_needed};
use crate::prelude::*;

/// What a quota promises for each key.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) burst: u64,
    pub(crate) per_s: f64,
    /// When the store lost its state. Each time, every key gets a new burst.
    pub(crate) losses: Vec<Window>,
    pub(crate) elsewhere: Elsewhere,
}

/// A span of time, in microseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
}

impl Window {
    pub(crate) fn and(self, longer: Duration) -> Self {
        let to_us = self.to_us + longer.as_micros() as u64;
        Self { to_us, ..self }
    }
}

/// What may be admitted without the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elsewhere {
    /// Fail-closed.
    Nothing,
    /// In each process such a bucket, which is new in each outage.
    Local {
        burst: u64,
        per_s: f64,
        outages: u64,
    },
    /// Fail-open.
    Anything,
}

/// Clocks of two machines, or of a machine and its kernel, differ by less.
const CLOCKS_DIFFER: f64 = 1.001;

/// I1: over every interval T, no key is admitted more than its burst, what refills in T, a
/// burst for each loss in T, and what each process may admit by itself. Returns the largest
/// part of its burst that any key used.
pub(crate) fn admitted(ledger: &[Entry], promise: &Promise) -> Result<f64, String> {
    let mut by_store: BTreeMap<u32, Vec<Taken>> = BTreeMap::new();
    let mut by_itself: BTreeMap<(u32, u8), Vec<Taken>> = BTreeMap::new();
    for entry in ledger {
        let taken = Taken {
            from_us: entry.sent_us,
            to_us: entry.answered_us,
            units: f64::from(entry.cost),
        };
        match (entry.outcome, promise.elsewhere) {
            (Outcome::Allowed(By::Store), _) => by_store.entry(entry.key).or_default().push(taken),
            (Outcome::Allowed(_), Elsewhere::Nothing) => {
                return Err(format!("I1: admitted without the store: {entry:?}"));
            }
            (Outcome::Allowed(By::Local), Elsewhere::Local { .. }) => by_itself
                .entry((entry.key, entry.process))
                .or_default()
                .push(taken),
            (Outcome::Allowed(_), Elsewhere::Local { .. }) => {
                return Err(format!("I1: admitted without a decision: {entry:?}"));
            }
            _ => {}
        }
    }
    if by_store.is_empty() && by_itself.is_empty() {
        return Err("I1: no request was admitted".to_owned());
    }
    let burst = promise.burst as f64;
    let mut most: f64 = 0.0;
    for (key, mut taken) in by_store {
        // An interval that may contain a loss has room for one more burst.
        taken.extend(promise.losses.iter().map(|loss| Taken {
            from_us: loss.to_us,
            to_us: loss.from_us,
            units: -burst,
        }));
        let needed = most_needed(&taken, promise.per_s * CLOCKS_DIFFER / 1e6);
        if needed > burst + 1e-6 {
            return Err(format!("I1: key {key} used {needed} of a burst of {burst}"));
        }
        most = most.max(needed / burst);
    }
    if let Elsewhere::Local {
        burst,
        per_s,
        outages,
    } = promise.elsewhere
    {
        let share = (burst * outages) as f64;
        for ((key, process), taken) in by_itself {
            let needed = most_needed(&taken, per_s * CLOCKS_DIFFER / 1e6);
            if needed > share + 1e-6 {
                return Err(format!(
                    "I1: process {process} admitted {needed} of key {key} by itself, of {share}"
                ));
            }
        }
    }
    Ok(most)
}
