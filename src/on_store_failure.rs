//! The choice of what happens while a store fails.

/// Chooses how a policy decides while its store fails.
///
/// [`Decision::source`](crate::Decision::source) reports who decided. An outage is logged when
/// it starts and when it ends.
///
/// In a check of several policies, one with [`Deny`](Self::Deny) denies the check. The
/// [local](Self::Local) ones decide together, all or none, and those with
/// [`Allow`](Self::Allow) are left out.
///
/// **Overload.** More checks at once than the store can answer are a failure, too. But `Allow`
/// denies them: a flood must not switch the limits off.
///
/// **Corrupt state** under a caller's key is not such a failure: that caller gets 503 until the
/// key has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Decide in this process, by the whole quota or a share of it. The default is the whole
    /// quota: [`local`](Self::local).
    ///
    /// The local buckets start full and are kept, so a store that fails again and again grants
    /// no new burst each time.
    ///
    /// **What that admits**: during an outage, each process grants its share in addition to what
    /// the store has granted. If `share_of` is the number of processes, all of them together
    /// grant the quota, rounded up to one unit for each process. A window is rounded up each
    /// time: with a limit of 1, ten processes grant 10 in each window. If `share_of` is 1,
    /// *n* processes grant *n* times the quota.
    ///
    /// A request that costs more than the share is denied as under [`Deny`](Self::Deny), because
    /// no share can grant it. A share that would take more than 104 days to fill fills in 104
    /// days.
    #[non_exhaustive]
    Local {
        /// How many processes share the quota.
        share_of: u32,
    },
    /// Leave the policy out: it limits nothing during the outage. **The danger**: a flood
    /// reaches your handlers. If no other policy remains, the request is forwarded unchecked.
    Allow,
    /// Deny the request. A layer answers 503 with `Retry-After: 5`, never 429, and a
    /// [`Limiter`](crate::Limiter) returns the error. Use it for a limit that guards a secret,
    /// such as the one on a login. **The danger**: if the store is down, so is what it guards.
    Deny,
}

impl OnStoreFailure {
    /// Decides in this process, by the whole quota.
    #[must_use]
    pub const fn local() -> Self {
        Self::share_of(1)
    }

    /// Decides in this process, by one of `processes` equal shares of the quota. Zero is an
    /// error when the layer or limiter is built.
    ///
    /// ```
    /// use tower_throttle::{OnStoreFailure, Policy, TokenBucket};
    ///
    /// // Four instances of this service together allow 100 a second.
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
