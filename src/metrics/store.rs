//! The numbers of a store.

use super::{
    counts::counts,
    histogram::Histogram,
    settlements::Settlements,
    sums::{Numbers, by_name},
};

/// What a store counts, as plain numbers.
///
/// [`Store::metrics`](crate::store::Store::metrics) returns what the store itself counts.
/// A layer or limiter adds what only it knows: `failures`, `is_up`, `held_units`,
/// `unsettled_units`, `settlements` and `local_buckets`. `None` means that the store does not have this.
///
/// Layers and limiters on clones of one store share its numbers. A
/// [`Snapshot`](super::Snapshot) lists them once, and adds up the stores of one name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// The label `store`: a name that is fixed when the store is built. Default: `custom`.
    pub name: String,
    /// How long script calls took: from the moment when a call was ready to be sent, so with a
    /// wait for a connection, to the reply or to the deadline. A call that was not sent is not
    /// counted. Deciding in memory is not timed.
    pub call_seconds: Option<Histogram>,
    /// How many checks shared a call.
    pub checks_per_call: Option<Histogram>,
    /// Checks, refunds and statements about permits that the store did not decide.
    pub failures: StoreFailures,
    /// Whether the store decides, as it was logged: `false` from the first failure until the store
    /// has answered for 5 seconds without another one, and while a `RedisStore` has no connection to
    /// a server. Otherwise a store without checks keeps its last state. Overload and unexpected data
    /// count as failures, and do not change this.
    pub is_up: bool,
    /// How many of the servers in use have an open circuit breaker. A breaker closes when a probe
    /// is answered.
    pub breakers_open: Option<u64>,
    /// How many checks wait for the store now. Refunds do not count.
    pub in_flight: Option<u64>,
    /// The units of [`Concurrency`](crate::Concurrency) policies that this process holds, in the
    /// store and in its own buckets.
    pub held_units: u64,
    /// The units that requests of this process [hold](crate::Policy::hold_for) and have not
    /// settled, in the store and in its own buckets.
    pub unsettled_units: u64,
    /// What became of the units that requests of this process held.
    pub settlements: Settlements,
    /// How many buckets and cells a store in memory keeps, including drained ones that are not
    /// forgotten yet.
    pub memory_buckets: Option<u64>,
    /// How many buckets this process keeps to decide while the store fails.
    pub local_buckets: u64,
    /// How many denials are cached that have not ended.
    pub cached_denials: Option<u64>,
    /// How many units this process has leased and not used.
    pub leased_units: Option<u64>,
    /// The version of the [control document](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/control/)
    /// that applies, if the store's control is in use: when it was last written, in milliseconds
    /// since the UNIX epoch. 0: none.
    pub control_version: Option<u64>,
    /// 1 while what is stored of the control document differs from what applies, as it was logged:
    /// it cannot be read, lacks changes, or has a part that cannot apply. 0 if it does not.
    pub control_problems: Option<u64>,
    /// The number of the store, which no other store of the process has.
    pub(crate) id: Option<usize>,
}

/// The name of a store that does not give one.
const UNNAMED: &str = "custom";

impl Default for StoreMetrics {
    fn default() -> Self {
        Self::new(UNNAMED)
    }
}

impl StoreMetrics {
    /// Returns the numbers of a store of this name that has counted nothing.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            call_seconds: None,
            checks_per_call: None,
            failures: StoreFailures::default(),
            is_up: true,
            breakers_open: None,
            in_flight: None,
            held_units: 0,
            unsettled_units: 0,
            settlements: Settlements::default(),
            memory_buckets: None,
            local_buckets: 0,
            cached_denials: None,
            leased_units: None,
            control_version: None,
            control_problems: None,
            id: None,
        }
    }

    /// Adds up the stores of one name. A store that is listed more than once, because several layers use
    /// it, counts once.
    #[must_use]
    pub fn by_name<'a>(listed: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        by_name(listed)
    }
}

impl Numbers for StoreMetrics {
    fn id(&self) -> Option<usize> {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_bare(&self) -> bool {
        self.name == UNNAMED
    }

    /// A store that wraps another may share its [`Fallback`](crate::store::Fallback) and have no
    /// numbers of its own.
    fn add(&mut self, other: &Self) {
        add_histogram(&mut self.call_seconds, other.call_seconds.as_ref());
        add_histogram(&mut self.checks_per_call, other.checks_per_call.as_ref());
        self.failures.add(&other.failures);
        self.is_up &= other.is_up;
        add(&mut self.breakers_open, other.breakers_open);
        add(&mut self.in_flight, other.in_flight);
        self.held_units = self.held_units.saturating_add(other.held_units);
        self.unsettled_units = self.unsettled_units.saturating_add(other.unsettled_units);
        self.settlements.add(&other.settlements);
        add(&mut self.memory_buckets, other.memory_buckets);
        self.local_buckets = self.local_buckets.saturating_add(other.local_buckets);
        add(&mut self.cached_denials, other.cached_denials);
        add(&mut self.leased_units, other.leased_units);
        // Stores of one name usually follow one document.
        self.control_version = self.control_version.max(other.control_version);
        add(&mut self.control_problems, other.control_problems);
        self.id = None;
    }

    fn since(&self, former: &Self) -> Self {
        let histogram = |now: &Option<Histogram>, former: &Option<Histogram>| match (now, former) {
            (Some(now), Some(former)) => Some(now.since(former)),
            (now, _) => now.clone(),
        };
        Self {
            call_seconds: histogram(&self.call_seconds, &former.call_seconds),
            checks_per_call: histogram(&self.checks_per_call, &former.checks_per_call),
            failures: self.failures.since(&former.failures),
            settlements: self.settlements.since(&former.settlements),
            ..self.clone()
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn add_histogram(sum: &mut Option<Histogram>, more: Option<&Histogram>) {
    match (&mut *sum, more) {
        (Some(sum), Some(more)) => sum.add(more),
        (None, Some(more)) => *sum = Some(more.clone()),
        (_, None) => {}
    }
}

counts! {
    /// How often a store did not decide. The kinds are those of the log, and
    /// [the page of errors](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/errors/)
    /// explains what each means for a caller.
    StoreFailures, by "kind", as by_kind {
        /// No reply came in time.
        timeout,
        /// The connection was lost before the reply came.
        unavailable,
        /// Nothing was sent: the circuit breaker was open, or the server did not answer others.
        not_sent,
        /// Nothing was sent, because there was no connection.
        not_connected,
        /// This process asked for more than the store can answer in time.
        overloaded,
        /// The store answered with an error.
        refused,
        /// The server is one of a cluster, and another one has the slot.
        redirected,
        /// The reply was one to another check.
        foreign_reply,
        /// Unexpected data was stored under the bucket's key.
        corrupt_state,
    }
}

impl StoreFailures {
    /// Returns the place of a kind, as the log names it. Other errors are none of the store.
    pub(crate) fn place_of(kind: &str) -> Option<usize> {
        Self::default().by_kind().position(|(name, _)| name == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::counts::Tally, StoreFailures};

    /// Each kind is counted in the field of its own name.
    #[test]
    fn a_kind_has_the_field_of_its_name() {
        let counts = Tally::default();
        let kinds = StoreFailures::default().by_kind().map(|(kind, _)| kind);
        for (kind, times) in kinds.zip(1..) {
            let place = StoreFailures::place_of(kind).unwrap_or(usize::MAX);
            (0..times).for_each(|_| counts.add(place));
        }
        assert_eq!(StoreFailures::place_of("unsupported"), None);
        let failures = StoreFailures::from_array(counts.load());
        let shown = format!("{failures:?}");
        for ((kind, count), times) in failures.by_kind().zip(1..) {
            assert_eq!(count, times, "{kind}");
            assert!(shown.contains(&format!("{kind}: {times}")), "{shown}");
        }
        assert_eq!(failures.total(), 45);
    }
}
