//! The engine decides for layers and limiters. It has the store, the checked policies, the lists, and
//! the recorder, which counts decisions.
//!
//! A layer is an engine, the readers of a request, and its responses. A limiter is a handle on an
//! engine.

pub(crate) mod buckets;
mod live;

use std::{borrow::Cow, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    ConfigError, Decision, Key, Lists, MemoryStore, OnStoreFailure, Policy, PolicyDecision, Quota,
    admission::{Admission, WaitBound, refund::HeldCharges, wait_queue::MAX_WAITING},
    charge::{Charge, Demand, Operation},
    control::Control,
    enforcement::Enforcement,
    holds::Holds,
    metrics::{Observe, Recorder, Snapshot},
    overrides::{PolicyOverrides, SeenOverrides},
    policy::{Compiled, check_names, check_strikes},
    policy_name::{Name, limiter_name},
    store::{Store, checked::Checked, handle::StoreHandle},
    util::interned::Interned,
};

pub use self::live::Replacement;
pub(crate) use self::live::{HasEngine, Live};

/// Decides checks. Clones share the buckets, the lists and the counters.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) store: StoreHandle,
    pub(crate) policies: Arc<[Compiled]>,
    pub(crate) lists: Option<Lists>,
    /// The most callers of this process that wait for one bucket.
    max_waiting: usize,
    pub(crate) recorder: Arc<Recorder>,
}

impl Engine {
    pub(crate) fn policy(&self, name: &str) -> Option<&Compiled> {
        let mut policies = self.policies.iter();
        policies.find(|policy| *policy.name.text == *name)
    }

    /// Returns how many units a check charges, by its first policy.
    pub(crate) fn own_cost(&self) -> u64 {
        let first = self.policies.first();
        first.map_or(0, |policy| policy.demand.cost)
    }

    pub(crate) fn metrics(&self) -> Snapshot {
        self.recorder.snapshot(self.store.metrics())
    }

    /// Returns the only policy and the store, if a check is one call to a store in memory: all
    /// callers have the policy's own quota, which is enforced, and nothing is held. The rows "memory"
    /// of the benchmark show what that saves.
    #[inline]
    pub(crate) fn direct(&self, overrides: &SeenOverrides) -> Option<(&Compiled, &MemoryStore)> {
        match (&*self.policies, self.store.memory()) {
            ([policy], Some(memory))
                if !policy.demand.quota.is_concurrency()
                    && !policy.enforcement.may_be_shadow()
                    && policy.demand.hold.is_none()
                    && overrides.policy(&policy.name.text).is_none() =>
            {
                Some((policy, memory))
            }
            _ => None,
        }
    }

    /// Asks the store, unless an operator has banned the caller or no policy charges it: then
    /// `units` pass.
    #[inline]
    pub(crate) fn ask(&self, operation: Operation, charges: &Charges<'_>, units: u64) -> Checked {
        if let Some(decision) = charges.decision_by_bans(operation) {
            return Checked::Now(Ok(decision));
        }
        if charges.is_empty() {
            return Checked::Now(Ok(Decision::unlimited(units)));
        }
        let Charges {
            enforced, shadows, ..
        } = charges;
        let store = &self.store;
        store.check_with_shadows(operation, enforced, shadows, &self.recorder)
    }

    /// Returns the check that waits until these charges are admitted.
    pub(crate) fn admission(
        &self,
        charges: &Charges<'_>,
        max_wait: Duration,
        bound: WaitBound,
    ) -> Admission {
        let held = HeldCharges::new(&self.store, &charges.enforced);
        let shadows = charges.shadows.iter().cloned().map(Charge::into_owned);
        let (shadows, most) = (shadows.collect(), self.max_waiting);
        Admission::new(held, shadows, max_wait, bound, most, &self.recorder)
    }

    /// Returns the units that a decision about these charges holds.
    pub(crate) fn holds(&self, charges: &Charges<'_>, decision: &Decision) -> Option<Holds> {
        let terms = |charge: &Charge<'_>| {
            let policy = self.policy(charge.policy());
            let is_penalty = charge.demand.quota.penalty().is_some();
            // The settlements of a penalty are strikes.
            let is_debited = is_penalty && policy.is_some_and(|policy| policy.settles);
            (policy.map_or(0, |policy| policy.debt), is_debited)
        };
        let Charges {
            enforced, shadows, ..
        } = charges;
        let (store, recorder) = (&self.store, &self.recorder);
        Holds::new(store, enforced, shadows, decision, terms, recorder)
    }
}

/// Builds a [`Limiter`](crate::Limiter) of several policies, or with settings of its own.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, OnStoreFailure, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .name("mail")
///     .store(MemoryStore::new())
///     .policy(Policy::new("per-user", TokenBucket::per_minute(5)))
///     .policy(Policy::new("everyone", FixedWindow::per_day(1_000)).shared())
///     .on_store_failure(OnStoreFailure::Deny)
///     .build()?;
/// assert!(limiter.check_now("ann")?.is_allowed());
///
/// let error = Limiter::builder().build().unwrap_err();
/// assert_eq!(error.code(), "no-policies");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimiterBuilder {
    /// Default: a memory store of its own.
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) lists: Option<Lists>,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) shadow_all: bool,
    pub(crate) max_waiting: Option<usize>,
    pub(crate) name: Option<String>,
    pub(crate) observer: Option<Arc<dyn Observe>>,
    pub(crate) control: Option<Control>,
}

impl LimiterBuilder {
    /// Checks one of the policies.
    pub(crate) fn compile(&self, policy: &Policy) -> Result<Compiled, ConfigError> {
        let policy = policy.compile(self.on_store_failure)?;
        match self.shadow_all {
            true => policy.into_shadow(),
            false => Ok(policy),
        }
    }

    /// Checks the settings. `policies` are the compiled ones. `waits`: whether denied callers wait.
    /// `former`: the engine that is replaced. Its store and numbers are kept.
    pub(crate) fn build_engine(
        &self,
        policies: Vec<Compiled>,
        waits: bool,
        former: Option<&Engine>,
    ) -> Result<Engine, ConfigError> {
        check_names(policies.iter().map(|policy| &policy.name))?;
        check_strikes(&policies.iter(), waits)?;
        let name = limiter_name(self.name.as_deref())?;
        let policies: Arc<[Compiled]> = policies.into();
        let store = match former {
            // A name with other numbers than before has one quota, and not two.
            Some(former) => former.store.clone(),
            None => {
                let store = self.store.clone();
                let store = StoreHandle::new(store.unwrap_or_else(|| Arc::new(MemoryStore::new())));
                store.add_policies(&policies);
                store
            }
        };
        let store = store.follow(self.control.as_ref())?;
        let recorder = Recorder::new(
            former.map(|former| &*former.recorder),
            name,
            policies.iter().map(|policy| &policy.name),
            self.observer.clone(),
            store.memory().map(MemoryStore::clock),
        );
        Ok(Engine {
            store,
            policies,
            lists: self.lists.clone(),
            max_waiting: self.max_waiting.unwrap_or(MAX_WAITING),
            recorder,
        })
    }
}

impl Engine {
    /// Returns the same limits on another store, with numbers that start at 0. It follows no control
    /// document, and keeps the overrides that the former one has now.
    pub(crate) fn on_store(&self, store: Arc<dyn Store>) -> Self {
        let store = StoreHandle::new(store).with_overrides_of(&self.store);
        // Not those of the former engine: the store forgets policies when their engine is dropped.
        let policies: Arc<[Compiled]> = self.policies.iter().cloned().collect();
        store.add_policies(&policies);
        let recorder = Recorder::new(
            None,
            Arc::clone(&self.recorder.name),
            policies.iter().map(|policy| &policy.name),
            self.recorder.observer.clone(),
            store.memory().map(MemoryStore::clock),
        );
        Self {
            store,
            policies,
            recorder,
            ..self.clone()
        }
    }
}

/// The charges of a check: one bucket for each policy that applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges<'a> {
    /// The charges of the check that decides.
    pub(crate) enforced: SmallVec<[Charge<'a>; 4]>,
    /// The charges of shadow policies. Each is decided on its own.
    pub(crate) shadows: Vec<Charge<'a>>,
    /// The bans of the caller by operators, under enforced policies.
    bans: Vec<PolicyDecision>,
}

impl Engine {
    /// Adds the charge of a policy for a caller. `demand` returns the demand on the bucket, given
    /// the quota that an operator gave the caller. Returns `false` if it is a shadow policy for the
    /// caller and cannot be checked, as its quota holds permits.
    ///
    /// `charges` is the caller's, as lists that are returned would be copied.
    #[inline(always)]
    pub(crate) fn charge<'a>(
        &self,
        policy: &'a Compiled,
        (given, enforcement): (Option<&PolicyOverrides>, Enforcement),
        key: Cow<'a, Key>,
        demand: impl FnOnce(Option<&Interned<Quota>>) -> Cow<'a, Demand>,
        charges: &mut Charges<'a>,
    ) -> bool {
        let (quota, ban) = self.store.find_override(policy, given, &key);
        let demand = demand(quota);
        if policy.is_enforced_for(&key, enforcement) {
            if let Some(ban) = ban {
                charges.bans.push(ban);
            }
            charges.enforced.push(policy.charge(key, demand));
        } else if demand.quota.is_concurrency() {
            return false;
        } else {
            charges.shadows.push(policy.charge(key, demand));
        }
        true
    }
}

impl<'a> Charges<'a> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.enforced.is_empty() && self.shadows.is_empty()
    }

    /// Returns all charges, including those of shadow policies.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Charge<'a>> {
        self.enforced.iter().chain(&self.shadows)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Charge<'a>> {
        self.enforced.iter_mut().chain(&mut self.shadows)
    }

    /// Returns the charges under quotas that `is_meant` chooses, with other demands.
    pub(super) fn with_demands(
        &self,
        is_meant: impl Fn(&Quota) -> bool,
        demand: impl Fn(&Charge<'_>) -> Demand,
    ) -> Charges<'_> {
        let meant = |charge: &&Charge<'_>| is_meant(&charge.demand.quota);
        let with_demand = |charge| Charge::with_demand(charge, Cow::Owned(demand(charge)));
        Charges {
            enforced: self
                .enforced
                .iter()
                .filter(meant)
                .map(with_demand)
                .collect(),
            shadows: self.shadows.iter().filter(meant).map(with_demand).collect(),
            bans: Vec::new(),
        }
    }

    pub(crate) fn to_owned(&self) -> Charges<'static> {
        let owned = |charge: &Charge<'_>| charge.clone().into_owned();
        Charges {
            enforced: self.enforced.iter().map(owned).collect(),
            shadows: self.shadows.iter().map(owned).collect(),
            bans: self.bans.clone(),
        }
    }

    /// Returns the key that an enforced policy charges.
    #[inline]
    pub(crate) fn key_of(&self, policy: &Name) -> Option<&Key> {
        let mut charges = self.enforced.iter();
        let charge = charges.find(|charge| charge.policy == *policy);
        charge.map(|charge| &*charge.key)
    }

    /// Returns the denial of an operation that asks for units, if operators have banned the caller.
    /// Other operations still charge what the caller has used, and refund what it has not.
    #[inline]
    pub(crate) fn decision_by_bans(&self, operation: Operation) -> Option<Decision> {
        (self.is_banned() && operation.asks_for_units())
            .then(|| Decision::by_bans(self.bans.clone()))
    }

    #[inline]
    pub(crate) fn is_banned(&self) -> bool {
        !self.bans.is_empty()
    }
}
