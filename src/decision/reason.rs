//! Why a request is denied.

/// Why a request is denied.
///
/// It is in the extensions of the response, for outer layers, and in
/// [`Denied::reason`](crate::Denied::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DenialReason {
    /// A policy has no room now. Status 429.
    QuotaExceeded,
    /// The caller is banned by a [`Penalty`](crate::Penalty). Status 429.
    Banned,
    /// The cost exceeds what a policy can ever grant. Status 403.
    CostImpossible,
    /// The request lacks the key of a policy. Status 403.
    KeyMissing,
    /// The caller is on the deny list of the layer's [`Lists`](crate::Lists). Status 403.
    Listed,
    /// The store cannot decide, and this process may not decide in its place. Status 503.
    StoreFailed,
    /// The application is misconfigured. Status 500. The log says what to change.
    Misconfigured,
}
