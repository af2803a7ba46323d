//! Makes the response to a request that is denied, and records the denial.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};
use smallvec::SmallVec;

use super::{
    denied::{Denial, Denied},
    grpc::{self, GRPC_STATUS},
    headers::{Fields, SetBy, insert_if_absent},
    inline_text::InlineText,
    key::known_method,
    settings::{ResponseSettings, Settings},
};
use crate::{
    Decision, DenialReason, Fingerprint, Key, RequestHead, Source, Verdict,
    offenders::{DeniedCaller, Known, RecentDenial},
    policy_name::{ABNORMAL_USAGE, Name, QUOTA_EXCEEDED, quoted},
    telemetry,
    util::random::random_between,
};

/// Makes the response to a request that is denied.
pub(super) fn respond(
    denial: Denial<'_>,
    settings: &ResponseSettings,
    fields: &Fields,
    head: &RequestHead<'_>,
) -> Response<Bytes> {
    let retry_after = denial.retry_after();
    let retry_after = retry_after.map(|wait| match settings.retry_after_jitter {
        Duration::ZERO => wait,
        most => wait.saturating_add(most.mul_f64(random_between(0.0, 1.0))),
    });
    // A misconfiguration is logged once, with what to change.
    if denial.reason != DenialReason::Misconfigured {
        telemetry::denied(denial.reason, retry_after, denial.missing_key, || {
            denial.policies().map(|name| &*name.text)
        });
    }

    let denied = Denied {
        denial,
        head: *head,
        retry_after,
        grpc: settings.grpc_denials.content_type(head),
    };
    let retry_after = denied.retry_after();
    let (mut response, is_grpc) = match &settings.on_denied {
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
    let headers = response.headers_mut();
    // Caches do not store the response to a POST by default.
    if !is_grpc || head.method() != Method::POST {
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
    // A gRPC response has the wait in fields of its own.
    if let Some(wait) = retry_after.filter(|_| !is_grpc) {
        let value = InlineText::default().push_number(wait.as_secs()).to_value();
        insert_if_absent(headers, RETRY_AFTER, value);
    }
    // A denial on a store failure has no decision, so a 503 has no `RateLimit` fields.
    if let Some(decision) = denial.decision {
        fields.write(decision, headers, SetBy::Hook);
    }
    response.extensions_mut().insert(denial.reason);
    if settings.decision_in_extensions {
        if let Some(decision) = denial.decision_with_outer(head) {
            response.extensions_mut().insert(decision);
        }
    }
    if head.method() == Method::HEAD {
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        *response.body_mut() = Bytes::new();
    }
    response
}

impl Denied<'_> {
    /// Returns the response that would be sent without the hook.
    ///
    /// Plain HTTP: a `problem+json` body (RFC 9457) with its content type. gRPC: status
    /// 200, no body, `grpc-status`, `grpc-message`, and the wait in
    /// `grpc-retry-pushback-ms` and `grpc-status-details-bin`. The layer adds the other
    /// header fields later.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        if let Some(content_type) = self.grpc {
            let message = message(self.denial);
            let reason = self.denial.reason;
            return grpc::respond(content_type, reason, &message, self.retry_after);
        }
        let mut response = Response::new(problem(&self));
        *response.status_mut() = self.status();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

impl Denial<'_> {
    /// Returns the decision together with that of an outer layer.
    fn decision_with_outer(self, head: &RequestHead<'_>) -> Option<Decision> {
        let outer = head.extensions().get();
        let undecided = Decision::on_store_failure(Verdict::Denied);
        match (self.decision, self.reason) {
            (Some(decision), _) => Some(decision.within(outer)),
            (None, DenialReason::StoreFailed) => Some(undecided.within(outer)),
            (None, _) => None,
        }
    }
}

/// Returns a sentence for people.
fn message(denial: Denial<'_>) -> String {
    let text = match (denial.reason, denial.decision) {
        (DenialReason::CostImpossible, Some(decision)) => {
            let sentences = decision.policies().filter(|policy| policy.is_impossible());
            let sentences = sentences.map(|policy| {
                let (cost, name, limit) = (policy.cost(), policy.name(), policy.capacity());
                format!("Cost {cost} exceeds policy \"{name}\" ({limit}).")
            });
            return sentences.collect::<Vec<_>>().join(" ");
        }
        (DenialReason::CostImpossible, None) => "The cost exceeds the limit.",
        (DenialReason::QuotaExceeded, _) => "rate limit exceeded",
        (DenialReason::Banned, _) => "temporarily banned",
        (DenialReason::KeyMissing, _) => "Missing client key.",
        (DenialReason::Listed, _) => "caller denied",
        (DenialReason::StoreFailed, _) => "service unavailable",
        (DenialReason::Misconfigured, _) => "internal error",
    };
    text.to_owned()
}

/// The type of the problem document of a caller on the deny list.
const CALLER_DENIED: &str =
    "https://github.com/tower-throttle/tower-throttle/blob/main/docs/denied.md#caller-denied";

/// Returns a problem document (RFC 9457).
fn problem(denied: &Denied<'_>) -> Bytes {
    let (reason, status) = (denied.reason(), denied.status());
    if let (DenialReason::QuotaExceeded, Some(decision)) = (reason, denied.decision()) {
        let mut policies = decision.denied_by();
        if let (Some(policy), None) = (policies.next(), policies.next()) {
            return policy.interned_name().problem();
        }
    }
    let (kind, title) = match reason {
        DenialReason::QuotaExceeded => (QUOTA_EXCEEDED, "Quota Exceeded"),
        DenialReason::Listed => (CALLER_DENIED, "Caller Denied"),
        DenialReason::Banned => (ABNORMAL_USAGE, "Abnormal Usage Detected"),
        _ => ("about:blank", status.canonical_reason().unwrap_or_default()),
    };
    let mut json = InlineText::default();
    json.push(r#"{"type":""#).push(kind);
    json.push(r#"","title":""#).push(title);
    json.push(r#"","status":"#)
        .push_number(status.as_u16().into());
    if matches!(
        reason,
        DenialReason::CostImpossible | DenialReason::KeyMissing
    ) {
        let message = message(denied.denial);
        json.push(r#","detail":"#).push(&quoted(&message));
    }
    if let Some(decision) = denied.decision() {
        json.push(r#","violated-policies":["#);
        for (index, policy) in decision.denied_by().enumerate() {
            json.push(if index > 0 { "," } else { "" });
            // A string of printable ASCII is written the same way in JSON and in header fields.
            json.push(policy.quoted_name());
        }
        json.push("]");
    }
    json.push("}").to_bytes()
}

impl Settings {
    /// Denies a request: records the denial, and makes the response. `key_of`: returns the key that
    /// a policy would have charged.
    pub(super) fn deny<'a>(
        &self,
        denial: Denial<'_>,
        key_of: &dyn Fn(&Name) -> Option<Cow<'a, Key>>,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        let offenders = &self.engine.recorder.offenders;
        let callers = denial.policies();
        let callers = callers.map(|name| offenders.caller(name, false, key_of(name)));
        let callers: SmallVec<[DeniedCaller<'_>; 2]> = callers.collect();
        // A store in memory decides by the clock of the lists.
        let in_memory = denial.decision.filter(|decision| {
            decision.source() == Source::Store && self.engine.store.memory().is_some()
        });
        let decided_at_us = in_memory.map(Decision::decided_at_us);
        let details = || RecentDenial {
            retry_after: denial.retry_after(),
            method: known_method(head),
            #[cfg(feature = "axum")]
            route: {
                let route = head.extensions().get::<axum::extract::MatchedPath>();
                route.map(|route| route.as_str().to_owned())
            },
            ..RecentDenial::new(denial.reason)
        };
        let identify = |caller: &DeniedCaller<'_>, key: &Key| self.identify(caller, key, head);
        offenders.record(denial.reason, decided_at_us, &callers, details, identify);
        respond(denial, &self.response, &self.fields, head)
    }

    fn identify(&self, caller: &DeniedCaller<'_>, key: &Key, head: &RequestHead<'_>) -> Known {
        let policy = self.engine.policy(&caller.policy.text);
        let stored = policy.and_then(|policy| {
            let demand = Cow::Borrowed(&policy.demand);
            let charge = policy.charge(Cow::Borrowed(key), demand);
            Fingerprint::in_storage_key(&self.engine.store.storage_key(&charge)?)
        });
        // The request is of one of the callers who share these.
        let is_shared = [Key::everyone(), Key::missing()].contains(key);
        let name = self.name_offender.as_ref().filter(|_| !is_shared);
        Known::new(caller, key, stored, name.and_then(|name| (name.0)(head)))
    }
}
