//! What decides while a store fails.

mod health;
mod policies;
mod tasks;

use std::{
    borrow::Cow,
    fmt, mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::runtime::Handle;

pub(crate) use self::tasks::Tasks;
use self::{health::Health, policies::Policies};
use crate::{
    Clock, Decision, MemoryStore, Source, StoreError, SystemClock, Verdict,
    permits::{Holders, Take},
    policy::Compiled,
    store::{Answer, Check, Leg, Operation, OwnedLeg, Store},
};

/// What becomes of a policy while the store cannot decide.
///
/// The [`Decision`] says so ([`Source`](crate::Source)), and one line is logged
/// when it starts and one when it ends. In a check of several policies, one
/// that denies refuses it; the local ones decide together, all or none; those
/// that allow are left out.
///
/// **More checks at once than the store lets wait** are such a failure, except
/// that nothing is allowed unchecked: a flood must not open the gate. Foreign
/// data under a caller's key is not: that caller is answered with 503 until the
/// key has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Decide in this process, by the same quota or a part of it. This is the
    /// default, for one process: [`local`](Self::local).
    ///
    /// Its buckets start full and are kept, so that a store that fails now and
    /// then grants nobody a new burst each time. **What that admits**: beside
    /// what the store grants, each process grants its part once more in each
    /// failure. With `share_of` the number of processes, all of them together
    /// grant what the quota says, rounded up to one unit for each process (of a
    /// window, in each window: with a limit of 1, ten processes grant 10); with
    /// 1, as many times the quota as there are processes.
    ///
    /// A request that costs more than a process's part is refused as under
    /// [`Deny`](Self::Deny): no part can grant it, and no other is asked. A part
    /// that would fill more slowly than in 104 days fills in 104 days.
    Local {
        /// How many processes share the quota.
        share_of: u32,
    },
    /// Leave the policy out: it limits nothing meanwhile. **The danger** is
    /// that. Where no other policy remains, the request is forwarded unchecked.
    Allow,
    /// Refuse: a layer answers 503 with `Retry-After: 5`, never 429; a
    /// [`Limiter`](crate::Limiter) gives the error. For a limit that guards a
    /// secret, as on a login. **The danger**: what is behind it is only as
    /// available as the store.
    Deny,
}

impl OnStoreFailure {
    /// Decide in this process by the whole quota.
    #[must_use]
    pub const fn local() -> Self {
        Self::share_of(1)
    }

    /// Decide in this process by one part of the quota, of `processes` parts.
    ///
    /// ```
    /// use tower_throttle::{OnStoreFailure, Policy, TokenBucket};
    ///
    /// // four instances of this service, which together may do 100 a second
    /// let policy = Policy::new("search", TokenBucket::per_second(100))
    ///     .on_store_failure(OnStoreFailure::share_of(4));
    /// ```
    #[must_use]
    pub const fn share_of(processes: u32) -> Self {
        Self::Local {
            share_of: processes,
        }
    }
}

impl Default for OnStoreFailure {
    fn default() -> Self {
        Self::local()
    }
}

/// What decides while a store fails: buckets in this process, what was logged of the
/// failure, and which policies use the store. Clones share all three.
///
/// A [`Store`] hands one out ([`Store::fallback`]) so that all layers and
/// limiters on it share one. At most 100,000 buckets are kept, by the rules of
/// [`MemoryStore`], and 50,000 cells for the newcomers of each quota: 8 MB for one quota
/// and 3 MB for each other; 14 MB of a [`SlidingWindow`](crate::SlidingWindow), and
/// 16 bytes more for each entry of a [`SlidingLog`](crate::SlidingLog). Stores that
/// share a `Fallback` must share their buckets, too.
#[derive(Clone, Default)]
pub struct Fallback(Arc<Inner>);

#[derive(Default)]
struct Inner {
    health: Health,
    clock: Option<Arc<dyn Clock>>,
    /// Made when it is first needed.
    local: OnceLock<Arc<dyn Store>>,
    local_id: StoreId,
    tasks: Tasks,
    policies: Policies,
    /// What this process holds in the store, and in its buckets here.
    holders: Holders,
    local_holders: Holders,
}

const BUCKETS: usize = 100_000;

impl Fallback {
    /// One that nothing was taken from.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the time from `clock`: for tests, and for a store that does.
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

    fn local(&self) -> &Arc<dyn Store> {
        self.0.local.get_or_init(|| {
            let clock = self.0.clock.clone();
            let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
            let store = MemoryStore::builder().capacity(BUCKETS);
            Arc::new(store.clock(Arc::new(clock)).build())
        })
    }

    /// What the store said once says nothing of how it does now.
    #[inline]
    fn answered(&self, decision: &Decision) {
        if decision.source() == Source::Store {
            self.0.health.answered();
        }
    }

    /// Lets an answer of the store be, or decides in its place.
    fn settle(
        &self,
        answer: Result<Decision, StoreError>,
        check: &Check<'_>,
    ) -> Result<Decision, StoreError> {
        let error = match answer {
            Ok(decision) => {
                self.answered(&decision);
                return Ok(decision);
            }
            Err(error) if error.is_unsupported() => return Err(error),
            Err(error) => error,
        };
        let choices = || check.legs().iter().map(|leg| leg.on_store_failure);
        let is_flood = error.is_overloaded();
        if is_flood || error.is_corrupt_state() {
            self.0.health.shed(&error);
        } else {
            self.0.health.failed(&error);
        }
        if check.operation().is_back()
            || error.is_corrupt_state()
            || choices().any(|choice| choice == OnStoreFailure::Deny)
            || is_flood && choices().any(|choice| choice == OnStoreFailure::Allow)
        {
            return Err(error);
        }
        let operation = check.operation();
        let legs = check.legs().iter().filter_map(|leg| leg.local(operation));
        let Ok(legs) = legs.collect::<Result<SmallVec<[Leg<'_>; 2]>, _>>() else {
            return Err(error);
        };
        let is_lost = error.may_have_run() || error.is_foreign_reply();
        if legs.is_empty() {
            let units = check.legs().first().map_or(0, Leg::cost);
            return Ok(Decision::unchecked(units, is_lost));
        }
        match self.decide_locally(operation, legs) {
            Answer::Now(decision) => decision.map(|decision| decision.made_locally(is_lost)),
            // Memory answers at once.
            Answer::Later(_) => Err(error),
        }
    }

    /// Permits are left to be held: their caller adopts them.
    fn decide_locally(
        &self,
        operation: Operation,
        mut legs: SmallVec<[Leg<'_>; 2]>,
    ) -> Answer<Decision> {
        let mut takes = SmallVec::<[Take; 1]>::new();
        if operation == Operation::Take {
            for leg in &mut legs {
                if leg.asked.quota.is_concurrency() {
                    let store = self.local_store();
                    let mut own = OwnedLeg::from(&*leg);
                    takes.push(store.holders.take(&store, &mut own));
                    leg.asked = Cow::Owned(own.asked);
                }
            }
        }
        let answer = self.local().check(&Check::new(operation, &legs));
        let runtime = Handle::try_current().ok();
        for take in takes {
            match &answer {
                Answer::Now(Ok(decision)) if decision.is_allowed() => {
                    take.granted(runtime.as_ref()).leave();
                }
                _ => take.refused(),
            }
        }
        answer
    }

    fn local_store(&self) -> BackedStore {
        BackedStore {
            store: Arc::clone(self.local()),
            id: self.0.local_id,
            // What it answers says nothing of the store.
            fallback: Self::new(),
            holders: self.0.local_holders.clone(),
        }
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("health", &self.0.health)
            .finish_non_exhaustive()
    }
}

/// A store, and what decides while it fails.
#[derive(Clone)]
pub(crate) struct BackedStore {
    store: Arc<dyn Store>,
    id: StoreId,
    fallback: Fallback,
    holders: Holders,
}

impl fmt::Debug for BackedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackedStore")
            .field("store", &self.store)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

/// A number that no other store of the process has or had: the address of one that is
/// gone may be that of the next.
#[derive(Clone, Copy)]
struct StoreId(usize);

impl Default for StoreId {
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl BackedStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let fallback = store.fallback().unwrap_or_default();
        let holders = fallback.0.holders.clone();
        Self {
            store,
            id: StoreId::default(),
            fallback,
            holders,
        }
    }

    pub(crate) const fn holders(&self) -> &Holders {
        &self.holders
    }

    #[inline(always)]
    pub(crate) fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let mut answer = self.store.check(check);
        match &answer {
            Answer::Now(Ok(decision)) => self.fallback.answered(decision),
            _ => self.settle(&mut answer, check),
        }
        answer
    }

    /// Makes of an answer that is not a decision yet one that is, or will be.
    #[inline(never)]
    fn settle(&self, answer: &mut Answer<Decision>, check: &Check<'_>) {
        let nobody = Decision::on_store_failure(Verdict::Denied);
        let unsettled = mem::replace(answer, Answer::Now(Ok(nobody)));
        *answer = match unsettled {
            Answer::Now(answer) => Answer::Now(self.fallback.settle(answer, check)),
            Answer::Later(answer) => {
                let fallback = self.fallback.clone();
                let operation = check.operation();
                let mut legs = SmallVec::<[OwnedLeg; 1]>::new();
                for leg in check.legs() {
                    legs.push(leg.into());
                }
                Answer::Later(Box::pin(async move {
                    let answer = answer.await;
                    if let Ok(decision) = answer {
                        fallback.0.health.answered();
                        return Ok(decision);
                    }
                    let legs: SmallVec<[Leg<'_>; 2]> = legs.iter().map(OwnedLeg::leg).collect();
                    fallback.settle(answer, &Check::new(operation, &legs))
                }))
            }
        };
    }

    /// Forgets in the store and in this process.
    pub(crate) fn reset(&self, legs: &[Leg<'_>]) -> Answer<()> {
        if let Some(local) = self.fallback.0.local.get() {
            // Memory answers at once.
            drop(local.reset(legs));
        }
        self.store.reset(legs)
    }

    /// Notes that `owner` uses these policies on this store, to say it where a name
    /// has two quotas.
    pub(crate) fn add_policies<'a, T: ?Sized + Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        policies: impl Iterator<Item = &'a Compiled>,
    ) {
        for policy in policies {
            let owner = Arc::downgrade(owner);
            let is_alive = move || owner.strong_count() > 0;
            let known = &self.fallback.0.policies;
            known.add(&policy.name, *policy.asked.quota, is_alive);
        }
    }

    pub(crate) fn storage_key(&self, leg: &Leg<'_>) -> Option<String> {
        self.store.storage_key(leg)
    }

    /// The buckets of this process alone: where a decision that was made there
    /// is given back.
    pub(crate) fn local(&self) -> Self {
        self.fallback.local_store()
    }

    /// Does work for the store that its caller does not wait for.
    pub(crate) fn spawn<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.fallback.tasks().spawn(runtime, work);
    }

    /// The same for all that share the buckets.
    pub(crate) const fn id(&self) -> usize {
        self.id.0
    }

    /// That of the store, and that of what decides in its place.
    pub(crate) fn ids(&self) -> [usize; 2] {
        [self.id.0, self.fallback.0.local_id.0]
    }
}
