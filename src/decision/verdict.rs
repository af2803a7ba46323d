//! [`Verdict`] and [`Source`]: the outcome, and where it comes from.

use crate::charge::Operation;

/// Whether a check is allowed, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Every policy had room; the units were taken.
    Allowed,
    /// A policy had no room. Nothing was taken from any policy. The cost fits later, or after a
    /// credit if the bucket [never refills](crate::TokenBucket::without_refill).
    ///
    /// Also used if the store failed and a policy denies then. [`Decision::source`](crate::Decision::source) is
    /// [`Source::StoreFailure`] in that case, and no policy is listed. Or the caller is on the
    /// deny list, and the source is [`Source::List`].
    Denied,
    /// The cost is above what a policy can ever grant. Nothing was taken, and waiting cannot
    /// help.
    Impossible,
}

impl Verdict {
    pub(super) fn of(operation: Operation, fitting: u64, is_impossible: bool, wants: bool) -> Self {
        if is_impossible {
            Self::Impossible
        } else if fitting == 0 && (operation != Operation::TakeUpTo || wants) {
            Self::Denied
        } else {
            Self::Allowed
        }
    }
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The caller is on one of the [`Lists`](crate::Lists), or operators have banned it in a
    /// [control document](crate::control). No store was asked.
    List,
    /// The store decided. Also used if no policy applied; [`Decision::policies`](crate::Decision::policies) is then
    /// empty.
    Store,
    /// This process repeated a recent denial of the same caller by the store, which
    /// [still holds](crate::RedisStoreBuilder::denial_cache_ttl).
    Cache,
    /// This process decided from units that it had leased from the store:
    /// [`Policy::lease`](crate::Policy::lease).
    Lease,
    /// The store failed, and this process decided by the policies that are
    /// [local](crate::OnStoreFailure::Local) then.
    Local,
    /// The store failed, and [`OnStoreFailure`](crate::OnStoreFailure) allowed or denied
    /// without a decision.
    StoreFailure,
}

impl Source {
    /// Returns its name in metrics, the value of the label `source`: `"store_failure"`, for example. It
    /// is for logs and dashboards of your own.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Store => "store",
            Self::Cache => "cache",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::StoreFailure => "store_failure",
        }
    }
}
