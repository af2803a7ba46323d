//! Strikes, and bans by a penalty.

use std::{borrow::Cow, time::Duration};

use super::{Limiter, charges::Charges, limits::Limits};
use crate::{
    Decision, Key, StoreError,
    charge::{Demand, Operation},
    error::StoreErrorKind,
    policy::Compiled,
    quota::penalty::whole_ms,
    store::Answer,
};

impl Limiter {
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
        self.penalize(Operation::Debit, &key.into(), strikes).await
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
        let banned = self.penalize(Operation::Ban, &key, whole_ms(time));
        banned.await.map(drop)
    }

    /// Does something to the penalties of a caller, and counts the bans that it starts.
    async fn penalize(
        &self,
        operation: Operation,
        key: &Key,
        cost: u64,
    ) -> Result<Decision, StoreError> {
        let limits = self.limits.load_full();
        let decision = limits.penalize(operation, key, cost).wait().await?;
        limits.recorder.bans_started(&decision);
        Ok(decision)
    }
}

impl Limits {
    fn penalize(&self, operation: Operation, key: &Key, cost: u64) -> Answer<Decision> {
        let mut charges = Charges::default();
        let policies = self.policies.iter();
        let is_penalty = |policy: &Compiled| policy.demand.quota.penalty().is_some();
        let overrides = self.store.overrides();
        for policy in policies.filter(|policy| is_penalty(policy)) {
            let Some(asked) = self.charge(&overrides, policy, key, None) else {
                charges.is_any_off = true;
                continue;
            };
            let demand = Demand::new(asked.charge.demand.quota.clone(), cost);
            let charge = policy.charge(asked.charge.key, Cow::Owned(demand));
            match asked.is_enforced {
                true => charges.enforced.push(charge),
                false => charges.shadows.push(charge),
            }
        }
        if charges.is_empty() && charges.is_any_off {
            return Answer::Now(Ok(Decision::of_no_policies(0)));
        }
        if charges.is_empty() {
            return Answer::Now(Err(StoreError::new(StoreErrorKind::NoPenalty)));
        }
        self.send(operation, &charges)
    }
}
