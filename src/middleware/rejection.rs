//! The answer to a request that is not forwarded.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};

use super::{
    grpc::{self, GRPC_STATUS},
    headers::{self, Existing, Fields},
    layer::Answers,
    text::Text,
};
use crate::{
    Decision, DenialReason, Head, PolicyDecision, StoreError, Verdict,
    key::{KeyError, Missing},
    policy_name::quoted,
    telemetry,
};

/// What a client is told to wait for a store that fails.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// What a client is told to wait for a permit, at most.
const PERMIT_RETRY: Duration = Duration::from_secs(1);

/// A request that is not forwarded, for
/// [`on_denied`](crate::RateLimitLayerBuilder::on_denied).
#[derive(Debug)]
pub struct Denied<'a> {
    refusal: Refusal<'a>,
    head: Head<'a>,
    /// With its jitter.
    retry_after: Option<Duration>,
    /// The content type of a gRPC answer.
    grpc: Option<HeaderValue>,
}

impl<'a> Denied<'a> {
    /// Why.
    #[must_use]
    pub const fn reason(&self) -> DenialReason {
        self.refusal.reason
    }

    /// The request: what a request id, `Accept` or a path is read from.
    #[must_use]
    pub const fn head(&self) -> Head<'a> {
        self.head
    }

    /// The policies that refused it, by name: those without room, those that can never
    /// grant the cost, or the one that cannot tell who is asking. None where the store
    /// failed.
    pub fn policies(&self) -> impl Iterator<Item = &'a str> {
        self.refusal.policies()
    }

    /// What the request lacks if the reason is
    /// [`KeyMissing`](DenialReason::KeyMissing), by name: `missing client key (no header
    /// "x-api-key")`. The response does not say it unless you do. `None` for a `KeyError`
    /// that a handler answers.
    #[must_use]
    pub fn key_error(&self) -> Option<KeyError> {
        self.refusal.missing_key().map(Missing::into_error)
    }

    /// The decision, where a store made one.
    #[must_use]
    pub const fn decision(&self) -> Option<&'a Decision> {
        self.refusal.decision
    }

    /// The value of `Retry-After` in seconds: at least 1, rounded up, with its
    /// jitter. `None` where waiting is of no use.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after.map(|wait| whole_seconds(wait).max(1))
    }

    /// Whether the request is a gRPC call, by the layer's
    /// [`grpc_denials`](crate::RateLimitLayerBuilder::grpc_denials). Its client
    /// expects a gRPC status, as [`into_response`](Self::into_response) has it.
    #[must_use]
    pub const fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// The HTTP status that belongs to the [reason](Self::reason). A gRPC call has the
    /// status 200 instead, with the reason as `grpc-status`.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        status(self.reason())
    }

    /// The response that would be sent without the hook. Plain HTTP: a `problem+json`
    /// body (RFC 9457) with its content type. gRPC: status 200, no body, `grpc-status`,
    /// `grpc-message`, and the wait in `grpc-retry-pushback-ms` and
    /// `grpc-status-details-bin`. The layer adds the other header fields later.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        if let Some(content_type) = self.grpc {
            let (reason, message) = (self.refusal.reason, message(self.refusal));
            return grpc::respond(content_type, reason, &message, self.retry_after);
        }
        let mut response = Response::new(problem(self.refusal));
        *response.status_mut() = self.status();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// A `StoreError` is answered as [`StoreFailed`](DenialReason::StoreFailed).
impl From<StoreError> for DenialReason {
    fn from(_: StoreError) -> Self {
        Self::StoreFailed
    }
}

/// A missing key is answered as [`KeyMissing`](DenialReason::KeyMissing), an application
/// that lacks a part as [`Miswired`](DenialReason::Miswired).
impl From<KeyError> for DenialReason {
    fn from(error: KeyError) -> Self {
        if error.is_missing() {
            Self::KeyMissing
        } else {
            Self::Miswired
        }
    }
}

/// A request that is not forwarded, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal<'a> {
    reason: DenialReason,
    decision: Option<&'a Decision>,
    /// The policy that has no key for the request, and what the request lacks.
    keyless: Option<(&'a str, Missing)>,
}

impl From<DenialReason> for Refusal<'_> {
    fn from(reason: DenialReason) -> Self {
        Self {
            reason,
            decision: None,
            keyless: None,
        }
    }
}

impl<'a> Refusal<'a> {
    pub(super) fn denied(decision: &'a Decision) -> Self {
        // No policy is listed if the store failed.
        if decision.refused().next().is_none() {
            return DenialReason::StoreFailed.into();
        }
        Self {
            reason: match decision.verdict() {
                Verdict::Impossible => DenialReason::CostImpossible,
                _ => DenialReason::QuotaExceeded,
            },
            decision: Some(decision),
            keyless: None,
        }
    }

    pub(super) const fn key_missing(policy: &'a str, missing: Missing) -> Self {
        Self {
            reason: DenialReason::KeyMissing,
            decision: None,
            keyless: Some((policy, missing)),
        }
    }

    pub(super) const fn decision(self) -> Option<&'a Decision> {
        self.decision
    }

    fn missing_key(self) -> Option<Missing> {
        self.keyless.map(|(_, missing)| missing)
    }

    fn policies(self) -> impl Iterator<Item = &'a str> {
        let refused = self.decision.into_iter().flat_map(Decision::refused);
        let keyless = self.keyless.map(|(policy, _)| policy);
        refused.map(PolicyDecision::name).chain(keyless)
    }

    /// How long to wait, where that helps.
    fn retry_after(self) -> Option<Duration> {
        if self.reason == DenialReason::StoreFailed {
            return Some(STORE_RETRY);
        }
        let wait = |policy: &PolicyDecision| {
            let wait = policy.retry_after();
            // When a permit comes back, nobody knows.
            let is_held = policy.quota().is_concurrency();
            wait.map(|wait| {
                if is_held {
                    wait.min(PERMIT_RETRY)
                } else {
                    wait
                }
            })
        };
        let mut waits = self.decision?.refused().map(wait);
        waits.try_fold(Duration::ZERO, |longest, wait| Some(longest.max(wait?)))
    }
}

/// Makes the answer to a request that is not forwarded. `known`: `RateLimit-Policy`, if
/// it is the same for every decision.
pub(super) fn respond(
    refusal: Refusal<'_>,
    answers: &Answers,
    known: Option<&HeaderValue>,
    head: &Head<'_>,
) -> Response<Bytes> {
    let retry_after = refusal
        .retry_after()
        .map(|wait| wait.saturating_add(random_below(answers.retry_after_jitter)));
    // That one is logged once, with what to change.
    if refusal.reason != DenialReason::Miswired {
        let missing = refusal.missing_key();
        telemetry::denied(refusal.reason, retry_after, missing, || refusal.policies());
    }

    let denied = Denied {
        refusal,
        head: *head,
        retry_after,
        grpc: answers.grpc_denials.content_type(head),
    };
    let retry_after_s = denied.retry_after_s();
    let (mut response, is_grpc) = match &answers.on_denied {
        None => {
            let is_grpc = denied.is_grpc();
            (denied.into_response(), is_grpc)
        }
        // The hook chooses the protocol, too.
        Some(hook) => {
            let response = (hook.0)(denied);
            let is_grpc = response.headers().contains_key(GRPC_STATUS);
            (response, is_grpc)
        }
    };
    let fields = response.headers_mut();
    // No cache keeps the answer to a POST unless told to.
    if !is_grpc || head.method() != Method::POST {
        fields
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
    // gRPC has told the wait in fields of its own.
    if let Some(seconds) = retry_after_s.filter(|_| !is_grpc) {
        let value = Text::default().number(seconds).value();
        headers::add_one(fields, RETRY_AFTER, value);
    }
    if let Some(decision) = refusal.decision {
        Fields::of(decision, answers, known).add_to(fields, Existing::IsFromHook);
    }
    add_decision(&mut response, refusal, head);
    if head.method() == Method::HEAD {
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        *response.body_mut() = Bytes::new();
    }
    response
}

fn add_decision(response: &mut Response<Bytes>, refusal: Refusal<'_>, head: &Head<'_>) {
    response.extensions_mut().insert(refusal.reason);
    let mut decision = match (refusal.decision, refusal.reason) {
        (Some(decision), _) => decision.clone(),
        (None, DenialReason::StoreFailed) => Decision::on_store_failure(Verdict::Denied),
        (None, _) => return,
    };
    // A layer outside may have decided, too.
    if let Some(outer) = head.extensions().get() {
        decision.put_within(outer);
    }
    response.extensions_mut().insert(decision);
}

const fn status(reason: DenialReason) -> StatusCode {
    match reason {
        DenialReason::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        DenialReason::CostImpossible | DenialReason::KeyMissing => StatusCode::FORBIDDEN,
        DenialReason::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
        DenialReason::Miswired => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// One sentence for people.
fn message(refusal: Refusal<'_>) -> String {
    let text = match (refusal.reason, refusal.decision) {
        (DenialReason::CostImpossible, Some(decision)) => {
            let sentences = decision.policies().filter(|policy| policy.is_impossible());
            let sentences = sentences.map(|policy| {
                let (cost, name, limit) = (policy.cost(), policy.name(), policy.limit());
                format!("Cost {cost} exceeds policy \"{name}\" ({limit}).")
            });
            return sentences.collect::<Vec<_>>().join(" ");
        }
        (DenialReason::CostImpossible, None) => "The cost exceeds the limit.",
        (DenialReason::QuotaExceeded, _) => "rate limit exceeded",
        (DenialReason::KeyMissing, _) => "The request does not say who is asking.",
        (DenialReason::StoreFailed, _) => "service unavailable",
        (DenialReason::Miswired, _) => "internal error",
    };
    text.to_owned()
}

/// A problem document (RFC 9457).
fn problem(refusal: Refusal<'_>) -> Bytes {
    let reason = refusal.reason;
    let status = status(reason);
    let (kind, title) = match reason {
        DenialReason::QuotaExceeded => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Quota Exceeded",
        ),
        _ => ("about:blank", status.canonical_reason().unwrap_or_default()),
    };
    let mut json = Text::default();
    json.push(r#"{"type":""#).push(kind);
    json.push(r#"","title":""#).push(title);
    json.push(r#"","status":"#).number(status.as_u16().into());
    if matches!(
        reason,
        DenialReason::CostImpossible | DenialReason::KeyMissing
    ) {
        json.push(r#","detail":"#).push(&quoted(&message(refusal)));
    }
    if let Some(decision) = refusal.decision {
        json.push(r#","violated-policies":["#);
        for (at, policy) in decision.refused().enumerate() {
            json.push(if at > 0 { "," } else { "" });
            // Of printable ASCII, JSON writes a string as header fields do.
            json.push(policy.quoted_name());
        }
        json.push("]");
    }
    json.push("}").bytes()
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs()
        .saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn random_below(most: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};

    if most.is_zero() {
        return Duration::ZERO;
    }
    // Each state has keys of its own.
    let random = RandomState::new().hash_one(0_u8);
    most.mul_f64(random as f64 / u64::MAX as f64).min(most)
}
