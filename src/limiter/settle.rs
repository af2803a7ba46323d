//! What is charged and refunded afterwards, and reset.

use smallvec::SmallVec;

use super::{Limiter, charges::Charges, limits::Limits};
use crate::{
    Decision, Key, Refund, StoreError,
    charge::{Charge, Operation},
    store::Answer,
};
#[cfg(doc)]
use crate::{MemoryStore, OnStoreFailure, Policy};

impl Limiter {
    /// Refunds `units` to every policy, but no more than were taken from it: no caller ever
    /// has more than the capacity. [`Refund::refunded`] returns how many units it was.
    ///
    /// A [`SlidingWindow`](crate::SlidingWindow) refunds what the present
    /// window has counted, a [`SlidingLog`](crate::SlidingLog) its newest entries.
    ///
    /// **Refund what was used, and no more**: the store knows only how much is taken, not by
    /// whom. A larger credit also refunds units that [waiters](Self::acquire) reserved or
    /// that a process [leased](crate::Policy::lease). Those units are then granted twice.
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
        let (_, answer) = self.ask(Operation::Refund, &key.into(), Some(units));
        answer.wait().await.map(Refund::new)
    }

    /// Charges `units` whether there is room or not, for a cost that is known
    /// only afterwards. Each policy is charged by itself, as far as its
    /// [`max_debt`](crate::Policy::max_debt) allows.
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
    /// assert!(decision.retry_after() > Some(Duration::from_secs(60)), "150,000 tokens are owed");
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// If a [`MemoryStore`](crate::MemoryStore) is full, new callers share cells, and their debits charge what is
    /// left in them. While the store fails, a [local](crate::OnStoreFailure::Local) policy charges
    /// this process's buckets, and one that [allows](crate::OnStoreFailure::Allow) charges nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check`](Self::check). Some policies may be charged then.
    pub async fn debit(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        let answer = self.limits.load().debit(&key.into(), units);
        answer.wait().await
    }

    /// Resets this caller's buckets, as if it had never taken a unit, and lifts its bans. [Shared](crate::Policy::shared)
    /// buckets are not reset; [`reset_shared`](Self::reset_shared) resets those.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        let answer = self.limits.load().reset(&key.into(), false);
        answer.wait().await
    }

    /// Resets the buckets of the [shared](crate::Policy::shared) policies, for all callers.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        let answer = self.limits.load().reset(&Key::everyone(), true);
        answer.wait().await
    }
}

impl Limits {
    fn debit(&self, key: &Key, units: u64) -> Answer<Decision> {
        let overrides = self.store.overrides();
        if let Some(decision) = self.listed(&overrides, Operation::Debit, key, Some(units)) {
            return Answer::Now(Ok(decision));
        }
        let mut charges = self.charges(&overrides, key, Some(units));
        charges.leave_out_penalties();
        if let Some(decision) = self.unlimited(Operation::Debit, &charges, Some(units)) {
            return Answer::Now(Ok(decision));
        }
        if let Err(error) = charges.check(Operation::Debit) {
            return Answer::Now(Err(error));
        }
        let Charges {
            enforced, shadows, ..
        } = &mut charges;
        for charge in enforced.iter_mut().chain(shadows) {
            let debt = self.debt(charge);
            charge.demand.to_mut().may_owe(debt);
        }
        self.send(Operation::Debit, &charges)
    }

    fn reset(&self, key: &Key, shared: bool) -> Answer<()> {
        let chosen = self.policies.iter();
        let chosen = chosen.filter(|policy| policy.shared == shared);
        let mut charges: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        let overrides = self.store.overrides();
        for policy in chosen {
            let asked = self.charge(&overrides, policy, key, None);
            charges.extend(asked.map(|asked| asked.charge));
        }
        if charges.is_empty() {
            return Answer::Now(Ok(()));
        }
        self.store.reset(&charges)
    }
}
