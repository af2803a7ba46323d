//! Decides in this process while a store fails.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, Weak},
};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{
    Answer, Charge, Check, Operation, Store,
    context::{
        SharedStore, StoreContext,
        bans::{Bans, Strikes},
        permits::Take,
    },
    memory::buckets::Buckets,
};
use crate::{
    Clock, Decision, OnStoreFailure, Quota, StoreError, clock::SystemClock,
    metrics::store::StoreMetrics, policy::Compiled, policy_name::Name, telemetry, util::lock::lock,
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
#[derive(Clone, Debug, Default)]
pub struct Fallback(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) context: Arc<StoreContext>,
    pub(super) local_context: Arc<StoreContext>,
    clock: Option<Arc<dyn Clock>>,
    /// Created when it is first needed.
    pub(super) local: OnceLock<SharedStore>,
    pub(super) policies: KnownPolicies,
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
        let clock: Arc<dyn Clock> = clock;
        Self(Arc::new(Inner {
            context: Arc::new(StoreContext::new(Some(Arc::clone(&clock)))),
            clock: Some(clock),
            ..Inner::default()
        }))
    }

    /// Returns what this process knows of bans, pauses and strikes.
    pub(super) fn bans(&self) -> &Arc<Bans> {
        &self.0.context.bans
    }

    /// Returns the buckets of this process. Their answers do not count for the store's health.
    pub(super) fn local(&self) -> &SharedStore {
        self.0.local.get_or_init(|| {
            let clock = self.0.clock.clone();
            let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
            SharedStore {
                store: Arc::new(Buckets::new(BUCKETS, clock)),
                context: Arc::clone(&self.0.local_context),
                is_remote: false,
            }
        })
    }

    /// Returns the numbers of the store, with those that layers and limiters count. All users of
    /// this fallback share them.
    pub(super) fn metrics_of(&self, store: &dyn Store) -> StoreMetrics {
        let Inner {
            context,
            local_context,
            name,
            ..
        } = &*self.0;
        let units = |of: fn(&StoreContext) -> u64| of(context).saturating_add(of(local_context));
        let mut settlements = context.unsettled.settlements();
        settlements.add(&local_context.unsettled.settlements());
        let local = self.used_local().map(Store::metrics);
        // If the store panics here, the application can still read the counts of its limiters.
        let own = match catch_unwind(AssertUnwindSafe(|| store.metrics())) {
            Ok(own) => {
                name.get_or_init(|| own.name.clone());
                own
            }
            Err(_) => name.get().map(StoreMetrics::new).unwrap_or_default(),
        };
        StoreMetrics {
            failures: context.health.failures(),
            is_up: own.is_up && context.health.is_up(),
            held_units: units(|context| context.holders.units()),
            unsettled_units: units(|context| context.unsettled.units()),
            settlements,
            local_buckets: local.and_then(|local| local.memory_buckets).unwrap_or(0),
            id: Some(context.id),
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
        self.0.context.health.record(&answer);
        let error = match answer {
            Err(error) if !error.is_unsupported() => error,
            answer => return answer,
        };
        let is_lost = error.may_have_run() || error.is_foreign_reply();
        let bans = self.bans();
        if let Some(denied) = bans.denial_known(check) {
            return Ok(denied.made_locally(is_lost));
        }
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
        let charges = check.charges().iter().filter(|charge| {
            let choice = charge.on_store_failure;
            matches!(choice, OnStoreFailure::Local { .. })
        });
        let charges = charges.map(|charge| charge.local(operation));
        let Some(mut charges) = charges.collect::<Option<SmallVec<[Charge<'_>; 2]>>>() else {
            return Err(error);
        };
        if charges.is_empty() {
            let units = check.charges().first().map_or(0, Charge::cost);
            return Ok(Decision::unchecked(units, is_lost));
        }
        let mut takes = SmallVec::<[Take; 1]>::new();
        if operation == Operation::Take {
            for charge in &mut charges {
                match bans.take_strikes(charge, |strikes| &mut strikes.local) {
                    0 => {}
                    strikes => charge.demand.to_mut().kept_strikes = strikes,
                }
            }
            let permits = charges.iter_mut();
            let permits = permits.filter(|charge| charge.demand.quota.is_concurrency());
            takes.extend(permits.map(|charge| self.local().take_permit(charge)));
        }
        // The memory store always answers at once.
        let answer = self.local().store.check(&Check::new(operation, &charges));
        let Answer::Now(Ok(decision)) = answer else {
            return Err(error);
        };
        let runtime = Handle::try_current().ok();
        for mut take in takes {
            match decision.is_allowed() {
                // For the caller to adopt.
                true => take.granted(runtime.as_ref()).leave(),
                false => take.denied(),
            }
        }
        if operation == Operation::Take && !decision.is_allowed() {
            self.keep_denial(&decision, check.charges());
        }
        Ok(decision.made_locally(is_lost))
    }

    /// Keeps the strikes that a denial in this process is, so that the store counts them, too.
    fn keep_denial(&self, denied: &Decision, charges: &[Charge<'_>]) {
        let strikes = Strikes { store: 1, local: 0 };
        for policy in denied.policies() {
            let was_banned = policy.is_banned() && !policy.has_started_ban();
            let mut charges = charges.iter();
            let charge = charges.find(|charge| charge.policy == *policy.interned_name());
            if let Some(charge) =
                charge.filter(|charge| charge.demand.strikes.is_some() && !was_banned)
            {
                self.bans().keep_strikes(charge, strikes);
            }
        }
    }
}

/// The policies of the layers and limiters on one store, while these exist.
#[derive(Debug, Default)]
pub(super) struct KnownPolicies(Mutex<Vec<Used>>);

#[derive(Debug)]
struct Used {
    name: Name,
    quota: Quota,
    by: Weak<[Compiled]>,
    was_logged: bool,
}

/// The most policies that are compared.
const MOST: usize = 1_024;

impl KnownPolicies {
    /// Adds policies that are used as long as they exist.
    pub(super) fn add(&self, policies: &Arc<[Compiled]>) {
        // Tiers have several quotas under one name.
        for policy in policies.iter().filter(|policy| !policy.has_tiers) {
            let (name, quota) = (&policy.name, *policy.demand.quota);
            let mut known = lock(&self.0);
            known.retain(|used| used.by.strong_count() > 0);
            let of_this_name = || known.iter().filter(|used| used.name == *name);
            let mut quotas = of_this_name().map(|used| used.quota);
            let other = quotas.find(|other| *other != quota);
            let was_logged = of_this_name().any(|used| used.was_logged);
            if known.len() < MOST {
                known.push(Used {
                    name: name.clone(),
                    quota,
                    by: Arc::downgrade(policies),
                    was_logged: was_logged || other.is_some(),
                });
            }
            drop(known);
            if let Some(other) = other.filter(|_| !was_logged) {
                telemetry::two_quotas(&name.text, other, quota);
            }
        }
    }
}
