//! Why a request is denied.

/// Why a request is not forwarded: by [`Denied::reason`](crate::Denied::reason), and in the extensions of the
/// response, for layers outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DenialReason {
    /// A policy has no room now: 429.
    QuotaExceeded,
    /// The cost is above what a policy can ever grant: 403.
    CostImpossible,
    /// The request does not say who is asking: 403.
    KeyMissing,
    /// The store cannot decide, and the layer is to deny then: 503.
    StoreFailed,
    /// The application is put together wrongly: 500. The log says what to change.
    Misconfigured,
}
