//! What is done to the buckets of a key beside a check.

use std::time::Duration;

use super::Limiter;
use crate::{Decision, Key, Refund, StoreError};

impl Limiter {
    /// Refunds `units` to every policy that counts units, but no more than were taken from it: no caller ever
    /// has more than the capacity. [`Refund::refunded`] returns how many units it was.
    ///
    /// A [`SlidingWindow`](crate::SlidingWindow) refunds units of the present
    /// window, a [`SlidingLog`](crate::SlidingLog) its newest entries.
    ///
    /// **The danger** is a refund of more than was used: the store knows only how many units are taken,
    /// not by which check. A larger credit also refunds units that [waiters](Self::acquire) reserved
    /// or that a process [leased](crate::Policy::lease). Those units are then granted twice.
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
    /// Returns the errors of [`debit`](Self::debit).
    pub async fn credit(&self, key: impl Into<Key>, units: u64) -> Result<Refund, StoreError> {
        self.buckets(key).credit(units).await
    }

    /// Charges `units` even beyond the limit, for a cost that is known
    /// only afterwards. Each policy is charged separately, as far as its
    /// [`max_debt`](crate::Policy::max_debt) allows.
    ///
    /// A debit is always allowed, because its units have been used.
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
    /// Returns the errors of [`Buckets::debit`](crate::Buckets::debit).
    pub async fn debit(&self, key: impl Into<Key>, units: u64) -> Result<Decision, StoreError> {
        self.buckets(key).debit(units).await
    }

    /// Resets this caller's buckets, as if it had never taken a unit, and lifts its bans. [Shared](crate::Policy::shared)
    /// buckets are not reset; [`reset_shared`](Self::reset_shared) resets those.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        self.buckets(key).reset().await
    }

    /// Resets the buckets of the [shared](crate::Policy::shared) policies, for all callers.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the reset. It may have run.
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.buckets(Key::everyone()).reset_shared().await
    }

    /// Adds strikes to the caller's [`Penalty`](crate::Penalty) policies, for events that only the
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
    /// Returns an error if the store could not decide. This process then keeps the strikes, and sends
    /// them again, unless the error [may have run](StoreError::may_have_run). It is
    /// [`StoreError::is_unsupported`] if no policy is a penalty.
    pub async fn strike(&self, key: impl Into<Key>, strikes: u64) -> Result<Decision, StoreError> {
        self.buckets(key).strike(strikes).await
    }

    /// Bans a caller by hand, under all policies that are a [`Penalty`](crate::Penalty), for this
    /// time. A longer ban stays. [`reset`](Self::reset) lifts a ban, and forgets all strikes and
    /// how many bans there were.
    ///
    /// The ban applies at once to every check that reaches the store, and to all checks in this
    /// process. A process that repeats a
    /// [cached denial](crate::RedisStoreBuilder::denial_cache_ttl) of that caller notices a ban,
    /// and the end of one, within that time, a second by default. The time is rounded up to
    /// milliseconds. The ban does not count for [longer bans](crate::Penalty::doubling_up_to).
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
    /// Returns an error if the store does not confirm the ban. It holds in this process then, which
    /// sends it until the store has confirmed it, or it has ended. The error is
    /// [`StoreError::is_unsupported`] if no policy is a penalty.
    pub async fn ban(&self, key: impl Into<Key>, time: Duration) -> Result<(), StoreError> {
        self.buckets(key).ban(time).await
    }

    /// Pauses a key under all policies that are a [`Pause`](crate::Pause), for this time. A longer
    /// pause stays, so many answers that ask for a pause at the same time do no harm.
    /// [`resume`](Self::resume) ends a pause early.
    ///
    /// Checks are denied until the pause ends, in all processes on the same store. Callers that wait
    /// with [`acquire`](Self::acquire), or in a layer, wait for its end, also those that waited before
    /// it began. A check that the store decided before the pause is not called back. A process that
    /// repeats a [cached denial](crate::RedisStoreBuilder::denial_cache_ttl) notices `resume` within
    /// that time, a second by default. A pause never ends early, and at most two milliseconds late.
    ///
    /// **The danger**: the time is not bounded here. Bound what a partner sends; the layer in
    /// `tower-throttle-client` does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, MemoryStore, Pause};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let calls = Limiter::new(MemoryStore::new(), Pause);
    /// calls.pause("partner", Duration::from_secs(60)).await?;
    /// calls.pause("partner", Duration::from_secs(5)).await?; // does not shorten it
    /// let denied = calls.check("partner").await?;
    /// assert!(denied.retry_after() > Some(Duration::from_secs(50)));
    /// calls.resume("partner").await?;
    /// assert!(calls.check("partner").await?.is_allowed());
    /// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm the pause. It holds in this process then, which
    /// sends it until the store has confirmed it, or it has ended. The error is
    /// [`StoreError::is_unsupported`] if no policy is a pause.
    pub async fn pause(&self, key: impl Into<Key>, time: Duration) -> Result<(), StoreError> {
        self.buckets(key).pause(time).await
    }

    /// Ends a [pause](Self::pause) early. The callers of this process that wait for its end ask at once;
    /// those of other processes wait until the end that they know.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not confirm that. It may have run.
    pub async fn resume(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        self.buckets(key).resume().await
    }
}
