//! Policies and a store, without HTTP.

use std::{borrow::Cow, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    ConfigError, Decision, Key, List, Lists, MemoryStore, OnStoreFailure, Permit, Policy, Refund,
    StoreError,
    admission::{
        Admission, Shadows, WaitBound,
        refund::{HeldCharges, RefundGuard},
        wait_queue::MAX_WAITING,
    },
    charge::{Charge, Demand, Operation},
    error::StoreErrorKind,
    holds::{Holds, Reserved, Terms},
    metrics::{Awaited, Observe, Recorder, Snapshot},
    policy::{Compiled, check_names, check_strikes},
    policy_name::limiter_name,
    quota::penalty::whole_ms,
    store::{Answer, Store, handle::StoreHandle},
};

/// Checks policies outside HTTP: jobs, sockets, outbound calls.
///
/// It shares its buckets with every layer and limiter that uses the same
/// policy names, keys and store. Cloning is cheap and shares everything.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy, TokenBucket};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = Limiter::builder()
///     .store(MemoryStore::new())
///     .policy(Policy::new("per-user", TokenBucket::per_minute(5)))
///     .policy(Policy::new("everyone", FixedWindow::per_day(1_000)).shared())
///     .build()?;
///
/// let decision = limiter.check("user-42").await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.policies().map(|policy| policy.remaining()).collect::<Vec<_>>(), [4, 999]);
///
/// let decision = limiter.check_n("user-42", 5).await?;
/// assert_eq!(decision.denied_by().map(|policy| policy.name()).collect::<Vec<_>>(), ["per-user"]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// While the store cannot decide, [`OnStoreFailure`] chooses what happens, as in a layer. By
/// default, this process decides. With [`OnStoreFailure::Deny`] the check is an error.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Limits>);

/// What the clones of a limiter share.
#[derive(Debug)]
struct Limits {
    store: StoreHandle,
    policies: Arc<[Compiled]>,
    lists: Option<Lists>,
    /// The most callers of this process that wait for one bucket.
    max_waiting: usize,
    recorder: Arc<Recorder>,
}

impl AsRef<Recorder> for Limits {
    fn as_ref(&self) -> &Recorder {
        &self.recorder
    }
}

impl Limiter {
    /// Creates a limiter of one policy, or of a bare quota, on a store.
    ///
    /// # Panics
    ///
    /// Panics if the policy has a configuration error. The message is that of the
    /// [`ConfigError`], which [`builder`](Self::builder) returns instead.
    #[must_use]
    #[track_caller]
    #[allow(clippy::panic)]
    pub fn new(store: impl Store, policy: impl Into<Policy>) -> Self {
        match Self::builder().store(store).policy(policy).build() {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a limiter with several policies or other settings.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Checks one request of this caller. It charges each policy's own
    /// [cost](Policy::cost), by default 1.
    ///
    /// It does not wait. Under a [`LeakyBucket`](crate::LeakyBucket) with a queue,
    /// [`Decision::delay`] returns how long the caller has to wait.
    /// [`acquire`](Self::acquire) waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide. It is [`StoreError::is_unsupported`] for
    /// a [`Concurrency`](crate::Concurrency) policy, whose units are held, not used up: use
    /// [`acquire`](Self::acquire).
    pub async fn check(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        // The key is dropped before the future waits, so that the future stays small.
        let later = {
            let key = key.into();
            if let Some((policy, memory)) = self.direct() {
                let decision = memory.take(&charge(policy, &key, None));
                self.0.recorder.decided(&decision);
                return Ok(decision);
            }
            match self.ask(Operation::Take, &key, None) {
                Answer::Now(answer) => return self.counted(answer),
                Answer::Later(later) => later,
            }
        };
        self.awaited(later, Result::as_ref).await
    }

    /// Decides as [`check`](Self::check) does, without `.await`: for code that is not
    /// async, or that asks a [`MemoryStore`](crate::MemoryStore) very often.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(2));
    /// assert_eq!(limiter.check_now("ann")?.policies().next().unwrap().remaining(), 1);
    /// assert!(limiter.check_now("ann")?.is_allowed());
    /// assert!(!limiter.check_now("ann")?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check), and one with
    /// [`StoreError::is_unsupported`] if the store cannot answer at once. A memory store always
    /// can. A Redis store can only if a denial is cached or units are leased. Nothing is taken
    /// if it cannot.
    pub fn check_now(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        let key = key.into();
        if let Some((policy, memory)) = self.direct() {
            let decision = memory.take(&charge(policy, &key, None));
            self.0.recorder.decided(&decision);
            return Ok(decision);
        }
        match self.ask(Operation::Take, &key, None) {
            Answer::Now(answer) => self.counted(answer),
            // Nothing was asked, so there is nothing to count.
            Answer::Later(_) => Err(StoreError::new(StoreErrorKind::WouldWait)),
        }
    }

    /// Checks for `units` at once, from every policy, whatever their own costs.
    /// 0 checks without taking.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check).
    pub async fn check_n(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        let answer = self.ask(Operation::Take, &key.into(), Some(units));
        self.decide(answer).await
    }

    /// Takes as many units as every policy has room for, at most `units`.
    /// [`Decision::charged`] returns how many. The check is denied if there is none.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(5));
    /// assert_eq!(limiter.take_up_to("ann", 3).await?.charged(), 3);
    /// assert_eq!(limiter.take_up_to("ann", 3).await?.charged(), 2);
    /// assert!(!limiter.take_up_to("ann", 3).await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check).
    pub async fn take_up_to(
        &self,
        key: impl Into<Key>,
        units: u64,
    ) -> Result<Decision, StoreError> {
        let answer = self.ask(Operation::TakeUpTo, &key.into(), Some(units));
        self.decide(answer).await
    }

    /// Returns what [`check`](Self::check) would decide now. Takes and writes nothing;
    /// `remaining` is what is left before the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn peek(&self, key: impl Into<Key>) -> Result<Decision, StoreError> {
        let key = key.into();
        if let Some(decision) = self.listed(Operation::Peek, &key, None) {
            return Ok(decision);
        }
        let charges = self.charges(&key, None);
        let answer = self.send(Operation::Peek, &charges);
        drop(charges);
        answer.wait().await
    }

    /// Refunds `units` to every policy, but no more than were taken from it: no caller ever
    /// has more than the capacity. [`Refund::refunded`] returns how many units it was.
    ///
    /// A [`SlidingWindow`](crate::SlidingWindow) refunds what the present
    /// window has counted, a [`SlidingLog`](crate::SlidingLog) its newest entries.
    ///
    /// **Refund what was used, and no more**: the store knows only how much is taken, not by
    /// whom. A larger credit also refunds units that [waiters](Self::acquire) reserved or
    /// that a process [leased](Policy::lease). Those units are then granted twice.
    ///
    /// ```
    /// #![deny(unused_must_use)]
    /// use tower_throttle::{FixedWindow, Limiter, MemoryStore, StoreError};
    ///
    /// # fn main() -> Result<(), StoreError> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), FixedWindow::per_day(5));
    /// assert!(limiter.check_n("ann", 3).await?.is_allowed());
    /// // The job used one unit less.
    /// limiter.credit("ann", 1).await?;
    /// // No more than was taken comes back.
    /// assert_eq!(limiter.credit("ann", 10).await?.refunded(), 2);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check).
    pub async fn credit(&self, key: impl Into<Key>, units: u64) -> Result<Refund, StoreError> {
        let answer = self.ask(Operation::Refund, &key.into(), Some(units));
        answer.wait().await.map(Refund::new)
    }

    /// Charges `units` whether there is room or not, for a cost that is known
    /// only afterwards. Each policy is charged by itself, as far as its
    /// [`max_debt`](Policy::max_debt) allows.
    ///
    /// A debit is always allowed, since what it charges has been used.
    /// [`Decision::charged`] returns how many units were charged, and
    /// [`Decision::uncharged`] how many were not. A caller in debt is denied until
    /// the debt is paid back. [`PolicyDecision::reset_after`](crate::PolicyDecision::reset_after)
    /// returns the time until nothing is owed or used anymore.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// // A stream that turned out to cost 250,000 tokens.
    /// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(100_000));
    /// let debit = limiter.debit("ann", 250_000).await?;
    /// assert_eq!((debit.charged(), debit.uncharged()), (250_000, 0));
    ///
    /// let decision = limiter.check("ann").await?;
    /// assert!(!decision.is_allowed());
    /// assert!(decision.retry_after() > Some(Duration::from_secs(89)), "150,000 tokens are owed");
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// If a [`MemoryStore`] is full, new callers share cells, and their debits charge what is
    /// left in them. While the store fails, a [local](OnStoreFailure::Local) policy charges
    /// this process's buckets, and one that [allows](OnStoreFailure::Allow) charges nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check). Some policies may be charged then.
    pub async fn debit(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        let key = key.into();
        if let Some(decision) = self.listed(Operation::Debit, &key, Some(units)) {
            return Ok(decision);
        }
        let mut charges = self.charges(&key, Some(units));
        charges.leave_out_penalties();
        charges.check(Operation::Debit)?;
        let Charges { enforced, shadows } = &mut charges;
        let charges_of_buckets = enforced.iter_mut().chain(shadows);
        for charge in charges_of_buckets.filter(|charge| !charge.is_hold()) {
            let debt = self.debt(charge);
            charge.demand.to_mut().may_owe(debt);
        }
        let answer = self.send(Operation::Debit, &charges);
        drop(charges);
        answer.wait().await
    }

    /// Waits until the caller is admitted, for at most `max_wait`.
    ///
    /// [`TokenBucket`](crate::TokenBucket) and [`LeakyBucket`](crate::LeakyBucket)
    /// reserve a place at once. So waiting is fair across all processes, to the millisecond in
    /// which timers tick. A caller that would have to wait too long is denied at once.
    ///
    /// Under windows and logs, the callers of one process form a queue. When units come back,
    /// the first caller asks again, and then the others, at most 64 units in a millisecond. A
    /// caller is denied at once if the callers ahead of it need all units that the windows grant
    /// within its `max_wait`. Processes compete for each window.
    ///
    /// Waiters for permits of a [`Concurrency`](crate::Concurrency) policy are admitted in
    /// the order in which they came to this process. A release in this process admits the
    /// next one at once; a release in another process is noticed within about a second.
    ///
    /// At most 65,536 callers of a process wait for one bucket;
    /// [`max_waiting`](LimiterBuilder::max_waiting) changes that.
    ///
    /// A full bucket admits its whole burst at once. To space requests from the first one on,
    /// use `burst(1)`, `capacity(1)`, or a queue.
    ///
    /// Dropping the future while it waits refunds everything. The waiters right behind it
    /// move up if they are in this process, on clones of this limiter. No waiter moves up
    /// past a waiter of another process: then the units stay taken. They also stay taken
    /// if the future is dropped after its turn has come.
    ///
    /// Call it inside a Tokio runtime with timers. A `max_wait` of zero never waits. Waits use
    /// Tokio's time, whatever [clock](crate::Clock) the store has. So a test with a
    /// [`ManualClock`](crate::ManualClock) uses `check`, and advances the clock.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn acquire(
        &self,
        key: impl Into<Key>,
        max_wait: Duration,
    ) -> Result<Permit, StoreError> {
        self.admit(&key.into(), None, max_wait).await
    }

    /// Waits as [`acquire`](Self::acquire) does, until every policy grants `units` at once. The
    /// policies' own costs do not apply.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn acquire_n(
        &self,
        key: impl Into<Key>,
        units: u64,
        max_wait: Duration,
    ) -> Result<Permit, StoreError> {
        self.admit(&key.into(), Some(units), max_wait).await
    }

    async fn admit(
        &self,
        key: &Key,
        units: Option<u64>,
        max_wait: Duration,
    ) -> Result<Permit, StoreError> {
        if let Some(decision) = self.listed(Operation::Take, key, units) {
            self.0.recorder.decided(&decision);
            return Ok(Permit::new(decision, None));
        }
        let (decision, taken) = self.admitted(&self.charges(key, units), max_wait).await?;
        Ok(Permit::new(decision, taken))
    }

    /// Waits until these charges are admitted.
    async fn admitted(
        &self,
        charges: &Charges<'_>,
        max_wait: Duration,
    ) -> Result<(Decision, Option<RefundGuard>), StoreError> {
        let Limits {
            store,
            max_waiting,
            recorder,
            ..
        } = &*self.0;
        let held = HeldCharges::new(store, &charges.enforced);
        let shadows = Shadows::new(&charges.shadows, recorder);
        let (bound, waits) = (WaitBound::All, recorder.waits());
        let admission = Admission::new(held, shadows, max_wait, bound, *max_waiting, waits);
        self.awaited(admission, |admitted| Ok(&admitted.as_ref()?.0))
            .await
    }

    /// Holds `units` of each policy that [holds](Policy::hold_for), until it is known how many are
    /// used. From the other policies, `units` are taken at once. All or none, as by
    /// [`check_n`](Self::check_n).
    ///
    /// What is held counts as used, and is charged when [`Reserved`] is settled. A process that
    /// dies before charges it in full, after one to two [lifetimes](Policy::hold_for). Work may
    /// last longer than that: this process then renews the hold, if `reserve` was called inside a
    /// Tokio runtime with timers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, Policy, TokenBucket};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// let tokens = Policy::new("tokens", TokenBucket::per_minute(10_000))
    ///     .hold_for(Duration::from_secs(60));
    /// let limiter = Limiter::new(MemoryStore::new(), tokens);
    ///
    /// let reserved = limiter.reserve("ann", 4_000).await?;
    /// assert!(reserved.is_allowed());
    /// // The model used less than that.
    /// let settled = reserved.settle(1_234).await?;
    /// assert_eq!(settled.charged(), 1_234);
    /// assert_eq!(limiter.peek("ann").await?.policies().next().unwrap().remaining(), 8_766);
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// A [list](LimiterBuilder::lists) decides before the policies, and holds nothing. Nor does a
    /// future that is dropped. While the store fails, a
    /// [local](OnStoreFailure::Local) policy holds units of this process's buckets, which are
    /// settled there. One that [allows](OnStoreFailure::Allow) holds nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`acquire`](Self::acquire), and one with
    /// [`StoreError::is_unsupported`] if no policy of this limiter holds units.
    pub async fn reserve(&self, key: impl Into<Key>, units: u64) -> Result<Reserved, StoreError> {
        if self.0.policies.iter().all(|policy| policy.hold.is_none()) {
            return Err(StoreError::new(StoreErrorKind::HoldsNothing));
        }
        let key = key.into();
        if let Some(decision) = self.listed(Operation::Take, &key, Some(units)) {
            self.0.recorder.decided(&decision);
            return Ok(Reserved::new(decision, None, None));
        }
        let charges = self.charges_holding(&key, Some(units), true);
        let (decision, taken) = self.admitted(&charges, Duration::ZERO).await?;
        let Charges { enforced, shadows } = &charges;
        let terms = |charge: &Charge<'_>| Terms {
            debt: self.debt(charge),
            is_debited: false,
        };
        let store = &self.0.store;
        let holds = Holds::new(store, enforced, shadows, &decision, terms);
        Ok(Reserved::new(decision, holds, taken))
    }

    /// Returns how many units the bucket of a charge may owe.
    fn debt(&self, charge: &Charge<'_>) -> u64 {
        let mut policies = self.0.policies.iter();
        let policy = policies.find(|policy| policy.name == charge.policy);
        policy.map_or(0, |policy| policy.debt)
    }

    /// Counts an answer that is known.
    fn counted(&self, answer: Result<Decision, StoreError>) -> Result<Decision, StoreError> {
        self.0.recorder.answered(&answer);
        answer
    }

    /// Waits for an answer, if it is not known yet, and counts it.
    async fn decide(&self, answer: Answer<Decision>) -> Result<Decision, StoreError> {
        match answer {
            Answer::Now(answer) => self.counted(answer),
            Answer::Later(later) => self.awaited(later, Result::as_ref).await,
        }
    }

    /// Waits for an answer, and counts it. `decision` returns what is counted.
    async fn awaited<F: Future + Unpin>(
        &self,
        mut later: F,
        decision: impl Fn(&F::Output) -> Result<&Decision, &StoreError>,
    ) -> F::Output {
        let mut awaited = Awaited::new(&*self.0);
        let answer = poll_fn(|cx| awaited.poll(|| Pin::new(&mut later).poll(cx))).await;
        awaited.ended(decision(&answer));
        answer
    }

    fn ask(&self, operation: Operation, key: &Key, units: Option<u64>) -> Answer<Decision> {
        if let Some(decision) = self.listed(operation, key, units) {
            return Answer::Now(Ok(decision));
        }
        let mut charges = self.charges(key, units);
        if operation == Operation::Refund {
            // Units that were charged are refunded, whatever is held.
            charges.enforced.retain(|charge| !charge.is_hold());
            charges.shadows.retain(|charge| !charge.is_hold());
            charges.leave_out_penalties();
        }
        match charges.check(operation) {
            Ok(()) => self.send(operation, &charges),
            Err(error) => Answer::Now(Err(error)),
        }
    }

    #[inline]
    fn send(&self, operation: Operation, charges: &Charges<'_>) -> Answer<Decision> {
        let Limits {
            store, recorder, ..
        } = &*self.0;
        store.check_with_shadows(operation, &charges.enforced, &charges.shadows, recorder)
    }

    /// Returns the decision for a key on a list. A denied caller still pays for what it has used,
    /// and gets back what it has not.
    fn listed(&self, operation: Operation, key: &Key, units: Option<u64>) -> Option<Decision> {
        let list = self.0.lists.as_ref()?.find_key(key)?;
        let is_settled = matches!(operation, Operation::Debit | Operation::Refund);
        if is_settled && list == List::Deny {
            return None;
        }
        let own_cost = || {
            self.0
                .policies
                .first()
                .map_or(0, |policy| policy.demand.cost)
        };
        let units = match operation {
            // Nothing was taken.
            Operation::Refund => 0,
            _ => units.unwrap_or_else(own_cost),
        };
        Some(Decision::by_list(list, units))
    }

    /// Returns the only policy and the store, if the store is in memory, nothing is held, the
    /// policy is enforced, and there are no lists.
    #[inline]
    fn direct(&self) -> Option<(&Compiled, &MemoryStore)> {
        if self.0.lists.is_some() {
            return None;
        }
        match (&*self.0.policies, self.0.store.memory()) {
            ([policy], Some(memory))
                if !policy.demand.quota.is_concurrency()
                    && !policy.enforcement.may_be_shadow()
                    && policy.hold.is_none() =>
            {
                Some((policy, memory))
            }
            _ => None,
        }
    }

    /// Adds strikes to the caller's [`Penalty`](crate::Penalty) policies, for what only the
    /// application can see, and bans it if they are enough.
    ///
    /// Policies of other quotas are left out; [`debit`](Self::debit) is for those.
    /// [`PolicyDecision::remaining`](crate::PolicyDecision::remaining) returns how many more strikes
    /// start a ban, and 0 if the caller is banned. [`charged`](Decision::charged) returns how many
    /// counted: strikes during a ban, and those beyond a ban, do not. A strike is always allowed.
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, Penalty};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), Penalty::after(3));
    /// // A wrong password counts once, one of a published list twice.
    /// assert_eq!(limiter.strike("ann", 2).await?.charged(), 2);
    /// assert!(limiter.check("ann").await?.is_allowed());
    /// assert_eq!(limiter.strike("ann", 2).await?.charged(), 1);
    /// assert!(!limiter.check("ann").await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide, and one with
    /// [`StoreError::is_unsupported`] if no policy is a penalty.
    pub async fn strike(&self, key: impl Into<Key>, strikes: u64) -> Result<Decision, StoreError> {
        let key = key.into();
        self.penalize(Operation::Debit, &key, strikes).wait().await
    }

    /// Bans a caller by hand, under all policies that are a [`Penalty`](crate::Penalty), for this
    /// time. A caller that is banned for longer stays so. [`reset`](Self::reset) lifts a ban, and
    /// forgets all strikes and how many bans there were.
    ///
    /// Every check that reaches the store feels it at once. So do all in this process. A process
    /// that repeats a [cached denial](crate::RedisStoreBuilder::denial_cache_ttl) of that caller
    /// feels a ban, and the end of one, within that time, a second by default. The time is rounded
    /// up to milliseconds. The ban does not count for
    /// [longer bans](crate::Penalty::doubling_up_to).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, Penalty};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), Penalty::after(20));
    /// limiter.ban("ann", Duration::from_secs(3_600)).await?;
    /// assert!(!limiter.check("ann").await?.is_allowed());
    /// limiter.reset("ann").await?;
    /// assert!(limiter.check("ann").await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// The key is the one that the policy's checks have: that of a layer with
    /// [`key::client_ip`](crate::key::client_ip) is a [`Key`] of an
    /// [`IpAddr`](std::net::IpAddr), in IPv6 of its prefix, and not of its text.
    /// [`Buckets::ban`](crate::Buckets::ban) bans the caller of a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the ban, which may hold then. It is
    /// [`StoreError::is_unsupported`] if no policy is a penalty.
    pub async fn ban(&self, key: impl Into<Key>, time: Duration) -> Result<(), StoreError> {
        let key = key.into();
        let answer = self.penalize(Operation::Ban, &key, whole_ms(time));
        answer.wait().await.map(drop)
    }

    /// Does something to the penalties of a caller.
    fn penalize(&self, operation: Operation, key: &Key, cost: u64) -> Answer<Decision> {
        let mut charges = Charges::default();
        let policies = self.0.policies.iter();
        for policy in policies.filter(|policy| policy.demand.quota.penalty().is_some()) {
            let asked = charge(policy, key, None);
            let demand = Cow::Owned(Demand::new(policy.demand.quota.clone(), cost));
            let asked = policy.charge(asked.key, demand);
            match policy.is_enforced_for(&asked.key) {
                true => charges.enforced.push(asked),
                false => charges.shadows.push(asked),
            }
        }
        if charges.enforced.is_empty() && charges.shadows.is_empty() {
            return Answer::Now(Err(StoreError::new(StoreErrorKind::NoPenalty)));
        }
        self.send(operation, &charges)
    }

    /// Resets this caller's buckets, as if it had never taken a unit, and lifts its bans. [Shared](Policy::shared)
    /// buckets are not reset; [`reset_shared`](Self::reset_shared) resets those.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        let key = key.into();
        self.forget(&key, false).wait().await
    }

    /// Resets the buckets of the [shared](Policy::shared) policies, for all callers.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.forget(&Key::everyone(), true).wait().await
    }

    /// Returns the Redis keys of this caller's buckets, one for each policy, to inspect them
    /// with `redis-cli`. The list is empty for stores without such keys.
    #[must_use]
    pub fn storage_keys(&self, key: impl Into<Key>) -> Vec<String> {
        let key = key.into();
        let charges = self.0.policies.iter();
        let charges = charges.map(|policy| charge(policy, &key, None));
        let keys = charges.filter_map(|charge| self.0.store.storage_key(&charge));
        keys.collect()
    }

    /// Returns how many checks this limiter and its clones have allowed and denied, and where
    /// the decisions came from: see [`metrics`](crate::metrics).
    ///
    /// ```
    /// use tower_throttle::{Limiter, MemoryStore, Policy, TokenBucket};
    ///
    /// let logins = Policy::new("logins", TokenBucket::per_minute(1));
    /// let limiter = Limiter::new(MemoryStore::new(), logins);
    /// assert!(limiter.check_now("ann")?.is_allowed());
    /// assert!(!limiter.check_now("ann")?.is_allowed());
    ///
    /// let seen = limiter.metrics();
    /// assert_eq!((seen.requests.allowed, seen.requests.denied), (1, 1));
    /// assert_eq!(seen.policy("logins").map(|checks| checks.denied), Some(1));
    /// # Ok::<(), tower_throttle::StoreError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        self.0.recorder.snapshot(self.0.store.metrics())
    }

    fn forget(&self, key: &Key, shared: bool) -> Answer<()> {
        let chosen = self.0.policies.iter();
        let chosen = chosen.filter(|policy| policy.shared == shared);
        let mut charges: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        for policy in chosen {
            let charge = charge(policy, key, None);
            charges.extend(policy.hold_before(&charge, 0));
            charges.push(charge);
        }
        if charges.is_empty() {
            return Answer::Now(Ok(()));
        }
        self.0.store.reset(&charges)
    }

    fn charges<'a>(&'a self, key: &'a Key, units: Option<u64>) -> Charges<'a> {
        self.charges_holding(key, units, false)
    }

    /// Returns the charges of a check. `holds`: the costs are held, by the policies that can.
    fn charges_holding<'a>(&'a self, key: &'a Key, units: Option<u64>, holds: bool) -> Charges<'a> {
        let mut charges = Charges::default();
        for policy in &*self.0.policies {
            let charge = charge(policy, key, units);
            // Also if nothing of it is held: what others hold counts.
            let held = if holds { charge.cost() } else { 0 };
            let hold = policy.hold_before(&charge, held);
            match policy.is_enforced_for(&charge.key) {
                true => charges.enforced.extend(hold.into_iter().chain([charge])),
                false => charges.shadows.extend(hold.into_iter().chain([charge])),
            }
        }
        charges
    }
}

/// What a caller is charged.
#[derive(Default)]
struct Charges<'a> {
    /// The charges of the check that decides.
    enforced: SmallVec<[Charge<'a>; 2]>,
    /// Each is a check of its own.
    shadows: Vec<Charge<'a>>,
}

/// Returns the charge of a policy on a caller's bucket: `units`, or the policy's own cost.
#[inline]
fn charge<'a>(policy: &'a Compiled, key: &'a Key, units: Option<u64>) -> Charge<'a> {
    let key = if policy.shared { &EVERYONE } else { key };
    let demand = match units {
        None => Cow::Borrowed(&policy.demand),
        Some(units) => Cow::Owned(Demand {
            strikes: policy.demand.strikes,
            ..Demand::of_request(policy.demand.quota.clone(), units)
        }),
    };
    policy.charge(Cow::Borrowed(key), demand)
}

impl Charges<'_> {
    fn leave_out_penalties(&mut self) {
        let is_of_units = |charge: &Charge<'_>| charge.demand.quota.penalty().is_none();
        self.enforced.retain(|charge| is_of_units(charge));
        self.shadows.retain(is_of_units);
    }

    /// Returns an error if a policy counts permits, which only [`Limiter::acquire`] can hold, or if
    /// no policy has the units that are asked for.
    fn check(&self, operation: Operation) -> Result<(), StoreError> {
        let mut enforced = self.enforced.iter().map(|charge| &charge.demand.quota);
        if enforced.clone().any(|quota| quota.is_concurrency()) {
            return Err(StoreError::new(StoreErrorKind::Unsupported));
        }
        let has_units = match operation {
            Operation::TakeUpTo | Operation::Refund | Operation::Debit => {
                enforced.any(|quota| quota.penalty().is_none()) || !self.shadows.is_empty()
            }
            _ => true,
        };
        match has_units {
            true => Ok(()),
            false => Err(StoreError::new(StoreErrorKind::OnlyPenalties)),
        }
    }
}

static EVERYONE: Key = Key::everyone();

/// Builds a [`Limiter`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimiterBuilder {
    store: Option<Arc<dyn Store>>,
    policies: Vec<Policy>,
    lists: Option<Lists>,
    on_store_failure: OnStoreFailure,
    shadow_all: bool,
    max_waiting: Option<usize>,
    name: Option<String>,
    observer: Option<Arc<dyn Observe>>,
}

impl LimiterBuilder {
    /// Sets where buckets are kept. Default: a [`MemoryStore`](crate::MemoryStore) of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Adds a policy, or a bare quota. A check needs room in all policies.
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policies.push(policy.into());
        self
    }

    /// Sets which keys are not limited and which are denied, whatever the policies say. Default:
    /// none.
    ///
    /// The limiter keeps a clone: [`Lists::replace`] takes effect with the next check. Listed
    /// addresses do not matter here, as there is no request: see [`Lists::find_ip`].
    ///
    /// A listed key is decided without a store: [`Decision::source`] is
    /// [`Source::List`](crate::Source::List). A key on the allow list gets the units that it asks
    /// for, and is not charged, also not by [`debit`](Limiter::debit). A key on the deny list is
    /// denied by each check. What it used before can still be debited and credited.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Lists, Source, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(TokenBucket::per_minute(5))
    ///     .lists(Lists::new().deny_keys(["mallory"])?)
    ///     .build()?;
    /// let decision = limiter.check_now("mallory")?;
    /// assert_eq!((decision.is_allowed(), decision.source()), (false, Source::List));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lists(mut self, lists: Lists) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Sets what happens while the store cannot decide, for policies
    /// [without a setting of their own](Policy::on_store_failure). Default:
    /// [`OnStoreFailure::local`].
    pub const fn on_store_failure(mut self, choice: OnStoreFailure) -> Self {
        self.on_store_failure = choice;
        self
    }

    /// Makes all policies [shadow policies](Policy::shadow): the limiter checks and counts, and
    /// denies nothing. What the policies say about enforcement and store failures does not
    /// matter then. A [`Concurrency`](crate::Concurrency) policy is an error when the limiter is
    /// built.
    pub const fn shadow_all(mut self) -> Self {
        self.shadow_all = true;
        self
    }

    /// Sets how many callers of this process may wait for one bucket at a time
    /// ([`Limiter::acquire`]). Default: 65,536. While that many wait, a further caller is denied
    /// at once, unless there is room for it now.
    ///
    /// Callers whose checks are in flight at the same time may exceed it.
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = Some(callers);
        self
    }

    /// Names the limiter in its [metrics](Limiter::metrics). Default: `default`.
    ///
    /// The name has 1 to 64 printable ASCII characters. It need not be unique: the numbers of
    /// limiters and layers of one name are added up where they are exported together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets what sees each check after it was counted. Default: nothing. It runs in the path of
    /// the check.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let policies: Arc<[Compiled]> = self
            .policies
            .iter()
            .map(|policy| {
                let policy = policy.compile_without_requests(self.on_store_failure)?;
                match self.shadow_all {
                    true => policy.into_shadow(),
                    false => Ok(policy),
                }
            })
            .collect::<Result<_, _>>()?;
        check_names(policies.iter().map(|policy| &policy.name))?;
        check_strikes(&policies.iter(), false)?;
        let name = limiter_name(self.name.as_deref())?;
        let names = policies.iter().map(|policy| &policy.name);
        let recorder = Recorder::new(name, names, self.observer);
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let store = StoreHandle::new(store);
        store.add_policies(&policies, policies.iter());
        Ok(Limiter(Arc::new(Limits {
            store,
            policies,
            lists: self.lists,
            max_waiting: self.max_waiting.unwrap_or(MAX_WAITING),
            recorder,
        })))
    }
}
