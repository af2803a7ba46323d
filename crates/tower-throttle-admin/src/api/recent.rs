//! [`Totals`]: what happened in some time.

use std::collections::BTreeMap;

use tower_throttle::metrics::{Checks, Snapshot, StoreMetrics};

/// What all layers and limiters counted in some seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// How long that was. 0: since the process started.
    pub(crate) seconds: f64,
    /// Requests by their outcome, and decisions by where they came from.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Failures of stores by their kind.
    pub(crate) failures: BTreeMap<&'static str, u64>,
}

impl Totals {
    pub(crate) fn new(seconds: f64, limiters: &[Snapshot], stores: &[StoreMetrics]) -> Self {
        let mut totals = Self {
            seconds,
            ..Self::default()
        };
        for one in limiters {
            add(&mut totals.counts, OUTCOMES.into_iter().zip(outcomes(one)));
            add(&mut totals.counts, one.decisions.by_source());
        }
        for store in stores {
            add(&mut totals.failures, store.failures.by_kind());
        }
        totals
    }

    /// Names the time: as given, unless it is all time since the process started.
    pub(crate) const fn period(&self, recent: &'static str) -> &'static str {
        match self.seconds > 0.0 {
            true => recent,
            false => "since this process started",
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        add(&mut self.counts, other.counts.clone());
        add(&mut self.failures, other.failures.clone());
    }

    /// Returns the number of decisions that a store was to make. Lists decide without one.
    pub(crate) fn decisions(&self) -> u64 {
        let of_stores = ["store", "cache", "lease"].map(|source| self.count(source));
        of_stores.iter().sum::<u64>() + self.undecided()
    }

    /// Returns how many of them no store made, neither at once nor before.
    pub(crate) fn undecided(&self) -> u64 {
        self.count("local") + self.count("store_failure")
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Returns the most frequent kind of failure, as metrics name it.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        let most = self.failures.iter().filter(|(_, count)| **count > 0);
        most.max_by_key(|(_, count)| **count).map(|(kind, _)| *kind)
    }
}

fn add<'a>(sums: &mut BTreeMap<&'a str, u64>, more: impl IntoIterator<Item = (&'a str, u64)>) {
    for (name, count) in more {
        *sums.entry(name).or_default() += count;
    }
}

pub(crate) const OUTCOMES: [&str; 3] = ["allowed", "denied", "shadow_denied"];

/// Returns how many requests were forwarded, how many were denied for whatever reason, and how many
/// shadow policies would have denied.
pub(super) fn outcomes(counted: &Snapshot) -> [u64; 3] {
    let requests = &counted.requests;
    let allowed = requests.allowed + requests.not_limited + requests.exempt;
    let denied = requests.total() - allowed - requests.cancelled;
    let shadow_denied = counted.policies().map(|(_, checks)| checks.shadow_denied);
    [allowed, denied, shadow_denied.sum()]
}

/// Returns the same of the checks of a policy.
pub(crate) const fn outcomes_of(checks: &Checks) -> [u64; 3] {
    let denied = checks.denied + checks.impossible + checks.key_missing;
    [checks.allowed + checks.near, denied, checks.shadow_denied]
}
