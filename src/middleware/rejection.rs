//! The answer to a request that is not forwarded.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};

use super::{
    grpc::{self, GRPC_STATUS},
    headers::{self, Existing, Fields},
    settings::Settings,
    text::Text,
};
use crate::{Decision, Head, PolicyDecision, Verdict, policy::quoted, telemetry};

/// What a client is told to wait for a store that fails.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// What a client is told to wait for a permit, at most.
const PERMIT_RETRY: Duration = Duration::from_secs(1);

/// Why a request is not forwarded: by [`Denied::reason`], and in the extensions of the
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
    Miswired,
}

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
    pub fn reason(&self) -> DenialReason {
        self.refusal.reason()
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

    /// The decision, where a store made one.
    #[must_use]
    pub fn decision(&self) -> Option<&'a Decision> {
        self.refusal.decision()
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
    pub fn status(&self) -> StatusCode {
        status(self.reason())
    }

    /// The response that would be sent without the hook. Plain HTTP: a `problem+json`
    /// body (RFC 9457) with its content type. gRPC: status 200, no body, `grpc-status`,
    /// `grpc-message`, and the wait in `grpc-retry-pushback-ms` and
    /// `grpc-status-details-bin`. The layer adds the other header fields later.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        if let Some(content_type) = self.grpc {
            let (reason, message) = (self.refusal.reason(), message(self.refusal));
            return grpc::respond(content_type, reason, &message, self.retry_after);
        }
        let mut response = Response::new(problem(self.refusal));
        *response.status_mut() = self.status();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal<'a> {
    Denied(&'a Decision),
    /// By the policy of this name.
    KeyMissing(&'a str),
    StoreFailed,
    Miswired,
}

impl<'a> Refusal<'a> {
    fn reason(self) -> DenialReason {
        match self {
            Self::Denied(decision) if decision.verdict() == Verdict::Impossible => {
                DenialReason::CostImpossible
            }
            Self::Denied(_) => DenialReason::QuotaExceeded,
            Self::KeyMissing(_) => DenialReason::KeyMissing,
            Self::StoreFailed => DenialReason::StoreFailed,
            Self::Miswired => DenialReason::Miswired,
        }
    }

    fn decision(self) -> Option<&'a Decision> {
        match self {
            Self::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    fn policies(self) -> impl Iterator<Item = &'a str> {
        let keyless = match self {
            Self::KeyMissing(policy) => Some(policy),
            _ => None,
        };
        let refused = self.decision().into_iter().flat_map(Decision::refused);
        refused.map(PolicyDecision::name).chain(keyless)
    }

    /// How long to wait, where that helps.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Denied(decision) => {
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
                let mut waits = decision.refused().map(wait);
                waits.try_fold(Duration::ZERO, |longest, wait| Some(longest.max(wait?)))
            }
            Self::StoreFailed => Some(STORE_RETRY),
            Self::KeyMissing(_) | Self::Miswired => None,
        }
    }
}

pub(super) fn respond(
    refusal: Refusal<'_>,
    settings: &Settings,
    head: &Head<'_>,
) -> Response<Bytes> {
    let jitter = settings.answers.retry_after_jitter;
    let retry_after = refusal
        .retry_after()
        .map(|wait| wait.saturating_add(random_below(jitter)));
    // That one is said once, with what to change.
    if !matches!(refusal, Refusal::Miswired) {
        telemetry::denied(refusal.reason(), retry_after, || refusal.policies());
    }

    let denied = Denied {
        refusal,
        head: *head,
        retry_after,
        grpc: settings.answers.grpc_denials.content_type(head),
    };
    let retry_after_s = denied.retry_after_s();
    let mut response = match &settings.answers.on_denied {
        Some(hook) => (hook.0)(denied),
        None => denied.into_response(),
    };
    let fields = response.headers_mut();
    let is_grpc = fields.contains_key(GRPC_STATUS);
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
    add_fields(fields, refusal, settings);
    add_decision(&mut response, refusal, head);
    if head.method() == Method::HEAD {
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        *response.body_mut() = Bytes::new();
    }
    response
}

fn add_fields(fields: &mut HeaderMap, refusal: Refusal<'_>, settings: &Settings) {
    if let Some(decision) = refusal.decision() {
        Fields::of(decision, settings).add_to(fields, Existing::IsFromHook);
    }
}

fn add_decision(response: &mut Response<Bytes>, refusal: Refusal<'_>, head: &Head<'_>) {
    response.extensions_mut().insert(refusal.reason());
    let mut decision = match refusal {
        Refusal::Denied(decision) => decision.clone(),
        Refusal::StoreFailed => Decision::on_store_failure(Verdict::Denied),
        Refusal::KeyMissing(_) | Refusal::Miswired => return,
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
    match refusal {
        Refusal::Denied(decision) if decision.verdict() == Verdict::Impossible => {
            let sentences = decision.policies().filter(|policy| policy.is_impossible());
            let sentences = sentences.map(|policy| {
                let (cost, name, limit) = (policy.cost(), policy.name(), policy.limit());
                format!("Cost {cost} exceeds policy \"{name}\" ({limit}).")
            });
            sentences.collect::<Vec<_>>().join(" ")
        }
        Refusal::Denied(_) => "rate limit exceeded".to_owned(),
        Refusal::KeyMissing(_) => "The request does not say who is asking.".to_owned(),
        Refusal::StoreFailed => "service unavailable".to_owned(),
        Refusal::Miswired => "internal error".to_owned(),
    }
}

/// A problem document (RFC 9457).
fn problem(refusal: Refusal<'_>) -> Bytes {
    let reason = refusal.reason();
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
    if let Some(decision) = refusal.decision() {
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
