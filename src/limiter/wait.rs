//! Checks that wait for room, and those that hold units.

use std::{sync::Arc, time::Duration};

use super::{Limiter, keyed::awaited};
use crate::{
    Buckets, Decision, Key, Permit, StoreError,
    admission::{Admission, WaitBound, refund::HeldPermits, wait_queue::windows},
    charge::{Charge, Operation},
    engine::{Charges, Engine},
    holds::Reserved,
    metrics::Recorder,
    store::checked::Checked,
};
#[cfg(doc)]
use crate::{LimiterBuilder, OnStoreFailure, Policy};

impl Limiter {
    /// Waits until the caller is admitted, for at most `max_wait`: for outbound calls and jobs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
    ///
    /// const SECOND: Duration = Duration::from_secs(1);
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// // Calls of a partner's API: one each 10 ms.
    /// let calls = Limiter::new(MemoryStore::new(), TokenBucket::per_second(100).burst(1));
    /// for _ in 0..3 {
    ///     assert!(calls.acquire("partner", SECOND).await?.is_allowed());
    ///     // Send the call here.
    /// }
    ///
    /// // If the wait would be longer than `max_wait`, the caller is denied at once.
    /// let reports = Limiter::new(MemoryStore::new(), TokenBucket::per_hour(1));
    /// assert!(reports.acquire("ann", SECOND).await?.is_allowed());
    /// let denied = reports.acquire("ann", SECOND).await?;
    /// assert!(!denied.is_allowed());
    /// assert!(denied.decision().retry_after() > Some(SECOND));
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// [`TokenBucket`](crate::TokenBucket) and [`LeakyBucket`](crate::LeakyBucket)
    /// reserve a place at once. So no process delays the callers of another, except by the
    /// millisecond in which timers tick. A caller that would have to wait too long is denied at
    /// once.
    ///
    /// Under windows and logs, the callers of one process form a queue. When units come back,
    /// the first caller checks again, and then the others, at most 64 units in a millisecond. A
    /// caller is denied at once if the callers ahead of it need all units that the windows grant
    /// within its `max_wait`. Processes compete for each window.
    ///
    /// Callers of a process that wait for one key are served in the order in which they come.
    /// [`check`](Self::check), which never waits, may pass them. For permits of a
    /// [`Concurrency`](crate::Concurrency) policy, a release in this process calls the first waiter at
    /// once; a release in another process is noticed within about a second. Poll the future until it is
    /// done, or drop it: a waiter that was called for a permit and is not polled keeps others from it.
    ///
    /// At most 65,536 callers of a process wait for one bucket;
    /// [`max_waiting`](crate::LimiterBuilder::max_waiting) changes that.
    ///
    /// A full bucket admits its whole burst at once. To space requests from the first one on,
    /// use `burst(1)`, `capacity(1)`, or a queue.
    ///
    /// Dropping the future while it waits refunds all its units. The waiters behind it move up if
    /// they are in this process, on clones of this limiter. If a waiter of another process is
    /// behind it, the units stay taken, for the waiters of this process. They also stay taken if
    /// the future is dropped after its turn has come, or if the bucket was credited meanwhile.
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
        let asked = self.ask_to_wait(&key.into(), None, max_wait);
        let (decision, permits) = asked.admitted().await?;
        Ok(Permit::new(decision, permits))
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
        let asked = self.ask_to_wait(&key.into(), Some(units), max_wait);
        let (decision, permits) = asked.admitted().await?;
        Ok(Permit::new(decision, permits))
    }

    fn ask_to_wait(&self, key: &Key, units: Option<u64>, max_wait: Duration) -> Asked {
        let engine = self.engine.load();
        let mut charges = Charges::default();
        if let Some(decision) = engine.add_charges(Operation::Take, key, units, &mut charges) {
            engine.recorder.decided(&decision);
            return Asked::Decided(decision);
        }
        engine.admit(&charges, max_wait)
    }

    /// Holds `units` of each policy that [holds](crate::Policy::hold_for), until the number of used
    /// units is known. The other policies charge `units` at once. All policies admit the request or
    /// none, as in [`check_n`](Self::check_n).
    ///
    /// Held units count as used, and are charged when [`Reserved`] is settled. If the process dies
    /// before, they are charged in full, after one to two [lifetimes](crate::Policy::hold_for). Work may
    /// last longer than that: this process then extends the hold, if `reserve` was called inside a
    /// Tokio runtime with timers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Limiter, MemoryStore, Policy};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    /// # runtime.block_on(async {
    /// let tokens = Policy::new("tokens", FixedWindow::per_day(10_000))
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
    /// A [list](crate::LimiterBuilder::lists) decides before the policies, and holds no units. A
    /// dropped future holds none, either. While the store fails, a
    /// [local](crate::OnStoreFailure::Local) policy holds units of this process's buckets, which are
    /// settled there. A policy that [allows](crate::OnStoreFailure::Allow) holds none.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`acquire`](Self::acquire), and one with
    /// [`StoreError::is_unsupported`] if no policy of this limiter holds units.
    pub async fn reserve(&self, key: impl Into<Key>, units: u64) -> Result<Reserved, StoreError> {
        let engine = self.engine.load_full();
        let mut policies = engine.policies.iter();
        if policies.all(|policy| policy.demand.hold.is_none()) {
            let mistake = "no policy of this limiter holds units; add `Policy::hold_for(..)`";
            return Err(StoreError::unsupported(mistake));
        }
        let key = key.into();
        let mut charges = Charges::default();
        if let Some(decision) = engine.add_charges(Operation::Take, &key, Some(units), &mut charges)
        {
            engine.recorder.decided(&decision);
            return Ok(Reserved::new(decision, None, HeldPermits::new()));
        }
        for charge in charges.all_mut() {
            charge.hold(charge.cost());
        }
        let asked = engine.wait(&charges, Duration::ZERO);
        let (decision, permits) = asked.admitted().await?;
        let holds = engine.holds(&charges, &decision);
        Ok(Reserved::new(decision, holds, permits))
    }
}

impl Buckets {
    /// Waits until these buckets admit the caller, for at most `max_wait`:
    /// [`Limiter::acquire`](crate::Limiter::acquire) has the details.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn acquire(&self, max_wait: Duration) -> Result<Permit, StoreError> {
        let (decision, permits) = self.ask_to_wait(None, max_wait).admitted().await?;
        Ok(Permit::new(decision, permits))
    }

    /// Waits as [`acquire`](Self::acquire) does, until every policy grants `units` at once. The
    /// policies' own costs do not apply.
    ///
    /// # Errors
    ///
    /// Returns an error if the store could not decide.
    pub async fn acquire_n(&self, units: u64, max_wait: Duration) -> Result<Permit, StoreError> {
        let (decision, permits) = self.ask_to_wait(Some(units), max_wait).admitted().await?;
        Ok(Permit::new(decision, permits))
    }

    fn ask_to_wait(&self, units: Option<u64>, max_wait: Duration) -> Asked {
        match self.take(units) {
            Ok(charges) => self.engine().admit(&charges, max_wait),
            Err(decision) => {
                self.engine().recorder.decided(&decision);
                Asked::Decided(*decision)
            }
        }
    }
}

impl Engine {
    /// Admits a caller that has room in memory, and that never gives anything back, while no caller
    /// of the process waits for a window. Otherwise it
    /// takes nothing, and the caller asks again as one that waits. The rows "calls to a partner" of
    /// the benchmark show it.
    fn admitted_at_once(&self, charges: &Charges<'_>) -> Option<Decision> {
        let keeps_nothing = |charge: &Charge<'_>| {
            let demand = &charge.demand;
            let is_held = demand.quota.is_concurrency() || demand.hold.is_some();
            !is_held && !demand.quota.paces() && demand.strikes.is_none()
        };
        let is_plain = charges.shadows.is_empty() && charges.enforced.iter().all(keeps_nothing);
        if !is_plain || self.store.memory().is_none() || windows::have_waiters() {
            return None;
        }
        let Checked::Now(Ok(decision)) = self.ask(Operation::Take, charges, 0) else {
            return None;
        };
        decision.is_allowed().then(|| {
            self.recorder.decided(&decision);
            decision
        })
    }

    fn admit(&self, charges: &Charges<'_>, max_wait: Duration) -> Asked {
        let at_once = self.admitted_at_once(charges);
        at_once.map_or_else(|| self.wait(charges, max_wait), Asked::Decided)
    }

    /// Asks for these charges, and waits until they are admitted.
    fn wait(&self, charges: &Charges<'_>, max_wait: Duration) -> Asked {
        let admission = self.admission(charges, max_wait, WaitBound::All);
        Asked::Waits(Arc::clone(&self.recorder), Box::new(admission))
    }
}

/// A check whose caller may wait. It has neither key nor charges, so that the futures stay small.
enum Asked {
    Decided(Decision),
    Waits(Arc<Recorder>, Box<Admission>),
}

impl Asked {
    async fn admitted(self) -> Result<(Decision, HeldPermits), StoreError> {
        match self {
            Self::Decided(decision) => Ok((decision, HeldPermits::new())),
            Self::Waits(recorder, admission) => {
                awaited(recorder, admission, |admitted| Ok(&admitted.as_ref()?.0)).await
            }
        }
    }
}
