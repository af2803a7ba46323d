//! Decides in this process while a store fails.

use std::{
    borrow::Cow,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{
    Answer, Charge, Check, Operation, Store,
    health::Health,
    known_policies::KnownPolicies,
    memory::buckets::Buckets,
    monitored::MonitoredStore,
    permits::{Holders, Take},
    tasks::Tasks,
    unsettled::Unsettled,
};
use crate::{
    Clock, Decision, OnStoreFailure, Source, StoreError, charge::Demand, clock::SystemClock,
    metrics::store::StoreMetrics, quota::penalty::whole_ms,
};

/// Decides while a store fails. It holds buckets in this process, what was logged about the
/// failure, and which policies use the store. Clones share all three.
///
/// A [`Store`] returns it from [`Store::fallback`], so that all layers and limiters on the
/// store share one. It keeps at most 100,000 buckets, by the rules of
/// [`MemoryStore`](crate::MemoryStore), and 50,000 cells for the new callers of each quota. That is
/// 7 MB for two quotas, and 14 MB for seven. It is 13 MB for one
/// [`SlidingWindow`](crate::SlidingWindow). Each entry of a [`SlidingLog`](crate::SlidingLog) takes
/// 16 bytes more. Stores that share a `Fallback` must share their buckets, too.
#[derive(Clone, Default)]
pub struct Fallback(Arc<Inner>);

#[derive(Default)]
struct Inner {
    health: Arc<Health>,
    clock: Option<Arc<dyn Clock>>,
    /// Created when it is first needed.
    local: OnceLock<MonitoredStore>,
    local_id: StoreId,
    tasks: Tasks,
    policies: KnownPolicies,
    /// The permits that this process holds in the store, and in its own buckets.
    holders: Holders,
    local_holders: Holders,
    /// What requests of this process hold in the store, and in its own buckets.
    unsettled: Unsettled,
    local_unsettled: Unsettled,
    /// The label of the store's metrics.
    name: OnceLock<String>,
}

const BUCKETS: usize = 100_000;

impl Fallback {
    /// Creates a fallback whose buckets are unused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a fallback that uses `clock`: for tests, and for a store with a clock of its
    /// own.
    #[must_use]
    pub fn with_clock(clock: Arc<impl Clock>) -> Self {
        Self(Arc::new(Inner {
            clock: Some(clock),
            ..Inner::default()
        }))
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.0.health
    }

    pub(super) fn policies(&self) -> &KnownPolicies {
        &self.0.policies
    }

    /// Returns the permits that this process holds in the store.
    pub(super) fn holders(&self) -> &Holders {
        &self.0.holders
    }

    /// Returns the permits that this process holds in its own buckets.
    pub(super) fn local_holders(&self) -> &Holders {
        &self.0.local_holders
    }

    /// Returns what requests of this process hold in the store.
    pub(super) fn unsettled(&self) -> &Unsettled {
        &self.0.unsettled
    }

    /// Returns what requests of this process hold in its own buckets.
    pub(super) fn local_unsettled(&self) -> &Unsettled {
        &self.0.local_unsettled
    }

    pub(super) fn local_id(&self) -> StoreId {
        self.0.local_id
    }

    /// Returns the buckets of this process. Their answers say nothing about the store.
    pub(super) fn local(&self) -> &MonitoredStore {
        self.0.local.get_or_init(|| {
            let clock = self.0.clock.clone();
            let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
            MonitoredStore {
                store: Arc::new(Buckets::new(BUCKETS, clock)),
                health: Arc::default(),
                tasks: Tasks::default(),
            }
        })
    }

    /// Returns the numbers of the store, with what layers and limiters know of it. All that share
    /// this fallback share that.
    pub(super) fn metrics_of(&self, store: &dyn Store) -> StoreMetrics {
        let Inner {
            health,
            holders,
            local_holders,
            unsettled,
            local_unsettled,
            name,
            ..
        } = &*self.0;
        let local = self.used_local().map(Store::metrics);
        // An application whose store panics here still reads what its limiters count.
        let own = match catch_unwind(AssertUnwindSafe(|| store.metrics())) {
            Ok(own) => {
                name.get_or_init(|| own.name.clone());
                own
            }
            Err(_) => name.get().map(StoreMetrics::new).unwrap_or_default(),
        };
        StoreMetrics {
            failures: health.failures(),
            is_up: health.is_up(),
            held_units: holders.units().saturating_add(local_holders.units()),
            unsettled_units: unsettled.units().saturating_add(local_unsettled.units()),
            settlements: unsettled.settlements().plus(&local_unsettled.settlements()),
            local_buckets: local.and_then(|local| local.memory_buckets).unwrap_or(0),
            id: Some(self.local_id().0),
            ..own
        }
    }

    /// Returns the buckets of this process, if they were ever used.
    pub(super) fn used_local(&self) -> Option<&dyn Store> {
        self.0.local.get().map(|local| &*local.store)
    }

    /// Returns the store's answer, or decides in its place if the store failed.
    pub(super) fn decide_instead(
        &self,
        answer: Result<Decision, StoreError>,
        check: &Check<'_>,
    ) -> Result<Decision, StoreError> {
        self.0.health.record(&answer);
        let error = match answer {
            Err(error) if !error.is_unsupported() => error,
            answer => return answer,
        };
        let choices = || check.charges().iter().map(|charge| charge.on_store_failure);
        if check.operation().is_of_taken()
            || check.operation() == Operation::Ban
            || error.is_corrupt_state()
            || choices().any(|choice| choice == OnStoreFailure::Deny)
            || error.is_overloaded() && choices().any(|choice| choice == OnStoreFailure::Allow)
        {
            return Err(error);
        }
        let operation = check.operation();
        let charges = check
            .charges()
            .iter()
            .filter_map(|charge| charge.local(operation));
        let Ok(charges) = charges.collect::<Result<SmallVec<[Charge<'_>; 2]>, _>>() else {
            return Err(error);
        };
        let is_lost = error.may_have_run() || error.is_foreign_reply();
        if charges.is_empty() {
            let units = check.charges().first().map_or(0, Charge::cost);
            return Ok(Decision::unchecked(units, is_lost));
        }
        match self.decide_locally(operation, charges) {
            Answer::Now(decision) => decision.map(|decision| decision.made_locally(is_lost)),
            // The memory store always answers at once.
            Answer::Later(_) => Err(error),
        }
    }

    /// Keeps the bans that the store reported, so that they go on while it fails.
    pub(super) fn keep_bans(&self, decision: &Decision, charges: &[Charge<'_>]) {
        if decision.is_allowed() || decision.source() != Source::Store {
            return;
        }
        let bans = decision.denied_by();
        for banned in bans.filter(|policy| policy.is_of_penalty()) {
            let mut charges = charges.iter();
            let charge = charges.find(|charge| charge.policy == *banned.interned_name());
            let local = charge.and_then(|charge| charge.local(Operation::Ban)?.ok());
            let (Some(local), Some(time)) = (local, banned.retry_after()) else {
                continue;
            };
            let demand = Demand::new(local.demand.quota.clone(), whole_ms(time));
            let ban = [local.with_demand(Cow::Owned(demand))];
            // The memory store answers at once.
            drop(self.local().store.check(&Check::new(Operation::Ban, &ban)));
        }
    }

    /// Decides in the buckets of this process. Granted permits stay held for the caller to
    /// adopt.
    fn decide_locally(
        &self,
        operation: Operation,
        mut charges: SmallVec<[Charge<'_>; 2]>,
    ) -> Answer<Decision> {
        let mut takes = SmallVec::<[Take; 1]>::new();
        if operation == Operation::Take {
            for charge in &mut charges {
                if charge.demand.quota.is_concurrency() {
                    takes.push(self.0.local_holders.take(self.local(), charge));
                }
            }
        }
        let answer = self.local().store.check(&Check::new(operation, &charges));
        let runtime = Handle::try_current().ok();
        for take in takes {
            match &answer {
                Answer::Now(Ok(decision)) if decision.is_allowed() => {
                    take.granted(runtime.as_ref()).leave();
                }
                _ => take.denied(),
            }
        }
        answer
    }
}

/// A number that no other store of the process has or had. An address would not do: a
/// later store may get that of one that was dropped.
#[derive(Clone, Copy)]
pub(super) struct StoreId(pub(super) usize);

impl Default for StoreId {
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("health", &self.0.health)
            .finish_non_exhaustive()
    }
}
