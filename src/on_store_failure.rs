//! The choice of what happens while a store fails.

/// Chooses how a policy decides while its store fails.
///
/// The [`Decision`](crate::Decision) says so ([`Source`](crate::Source)), and one line is logged
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
