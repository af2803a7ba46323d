//! The facts about a denied request.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::{
    Decision, DenialReason, PolicyDecision, RequestHead, StoreError, key::KeyError,
    policy_name::Name,
};

/// The `Retry-After` of a denial because the store failed.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// The longest `Retry-After` for a permit.
const PERMIT_RETRY: Duration = Duration::from_secs(1);

/// A denied request, which is not forwarded, for
/// [`on_denied`](crate::RateLimitLayerBuilder::on_denied).
#[derive(Debug)]
pub struct Denied<'a> {
    pub(super) denial: Denial<'a>,
    pub(super) head: RequestHead<'a>,
    /// With the jitter. Not rounded, as gRPC has milliseconds.
    pub(super) retry_after: Option<Duration>,
    /// The content type of a gRPC response.
    pub(super) grpc: Option<HeaderValue>,
}

impl<'a> Denied<'a> {
    /// Returns why the request is denied.
    pub const fn reason(&self) -> DenialReason {
        self.denial.reason
    }

    /// Returns the request, to read a request id, `Accept` or a path.
    pub const fn head(&self) -> RequestHead<'a> {
        self.head
    }

    /// Returns the names of the policies that denied the request: those without room,
    /// those that can never grant the cost, the one that found no key, or the one whose key is
    /// on the deny list. Empty if the store failed, and if the address is on the deny list.
    pub fn policy_names(&self) -> impl Iterator<Item = &'a str> {
        self.denial.policies().map(|name| &*name.text)
    }

    /// Returns what the request lacks, by name, if the reason is
    /// [`KeyMissing`](DenialReason::KeyMissing): ``missing client key (no header `x-api-key`)``.
    /// The default response does not include it. `None` for a `KeyError` that a handler passes
    /// to a [`Responder`](crate::Responder).
    pub fn key_error(&self) -> Option<KeyError> {
        self.denial.missing_key.cloned()
    }

    /// Returns the decision. `None` if no policy decided: the store failed, the key is missing, or the
    /// caller is on the deny list. The response then has no `RateLimit` fields.
    pub const fn decision(&self) -> Option<&'a Decision> {
        self.denial.decision
    }

    /// Returns the value of `Retry-After`: whole seconds, rounded up, at least one, and with
    /// its jitter. `None` if waiting does not help. The exact wait is that of the
    /// [decision](Decision::retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(whole_seconds)
    }

    /// Returns whether the request is a gRPC call, by the layer's
    /// [`grpc_denials`](crate::RateLimitLayerBuilder::grpc_denials). Its client
    /// expects a gRPC status, as [`into_response`](Self::into_response) has it.
    pub const fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// Returns the HTTP status for the [reason](Self::reason). A gRPC call has the
    /// status 200 instead, with the reason as `grpc-status`.
    pub const fn status(&self) -> StatusCode {
        match self.reason() {
            DenialReason::QuotaExceeded | DenialReason::Banned => StatusCode::TOO_MANY_REQUESTS,
            DenialReason::CostImpossible | DenialReason::KeyMissing | DenialReason::Listed => {
                StatusCode::FORBIDDEN
            }
            DenialReason::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
            DenialReason::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A `StoreError` becomes [`StoreFailed`](DenialReason::StoreFailed).
impl From<StoreError> for DenialReason {
    fn from(_: StoreError) -> Self {
        Self::StoreFailed
    }
}

/// A key that is missing or ambiguous becomes [`KeyMissing`](DenialReason::KeyMissing), a misconfigured
/// application [`Misconfigured`](DenialReason::Misconfigured).
impl From<KeyError> for DenialReason {
    fn from(error: KeyError) -> Self {
        match error.advice() {
            None => Self::KeyMissing,
            Some(_) => Self::Misconfigured,
        }
    }
}

/// Why a request is not forwarded, and what led to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial<'a> {
    pub(super) reason: DenialReason,
    pub(super) decision: Option<&'a Decision>,
    /// The policy that found no key, or whose key is on the deny list.
    policy: Option<&'a Name>,
    /// The key that the request lacks.
    pub(super) missing_key: Option<&'a KeyError>,
}

impl From<DenialReason> for Denial<'_> {
    fn from(reason: DenialReason) -> Self {
        Self {
            reason,
            decision: None,
            policy: None,
            missing_key: None,
        }
    }
}

impl<'a> From<&'a Decision> for Denial<'a> {
    fn from(decision: &'a Decision) -> Self {
        let reason = decision.denial_reason();
        let reason = reason.unwrap_or(DenialReason::StoreFailed);
        let is_undecided = matches!(reason, DenialReason::Listed | DenialReason::StoreFailed);
        Self {
            decision: (!is_undecided).then_some(decision),
            ..reason.into()
        }
    }
}

impl<'a> Denial<'a> {
    /// `policy`: the one whose key is on the deny list, if it is not the address.
    pub(super) fn by_list(policy: Option<&'a Name>) -> Self {
        Self {
            policy,
            ..DenialReason::Listed.into()
        }
    }

    /// `policy`: the one that found no key, if it was not the lists that found no address.
    pub(super) fn from_key_error(policy: Option<&'a Name>, error: &'a KeyError) -> Self {
        match error.advice() {
            None => Self {
                policy,
                missing_key: Some(error),
                ..DenialReason::KeyMissing.into()
            },
            Some(_) => DenialReason::Misconfigured.into(),
        }
    }

    pub(super) fn policies(self) -> impl Iterator<Item = &'a Name> {
        let denied_by = self.decision.into_iter().flat_map(Decision::denied_by);
        denied_by
            .map(PolicyDecision::interned_name)
            .chain(self.policy)
    }

    /// Returns how long to wait, if that helps.
    pub(super) fn retry_after(self) -> Option<Duration> {
        if self.reason == DenialReason::StoreFailed {
            return Some(STORE_RETRY);
        }
        let wait = |policy: &PolicyDecision| {
            let wait = policy.retry_after()?;
            // The time of a release is unknown.
            let is_held = policy.quota().is_concurrency();
            Some(if is_held {
                wait.min(PERMIT_RETRY)
            } else {
                wait
            })
        };
        let mut waits = self.decision?.denied_by().map(wait);
        waits.try_fold(Duration::ZERO, |longest, wait| Some(longest.max(wait?)))
    }
}

/// Rounds up to whole seconds, at least one: `Retry-After` has no fractions.
fn whole_seconds(wait: Duration) -> Duration {
    let fraction = u64::from(wait.subsec_nanos() > 0);
    Duration::from_secs(wait.as_secs().saturating_add(fraction).max(1))
}
