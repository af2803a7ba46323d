//! The formats that report one policy.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    HeaderFormat, RATELIMIT, RATELIMIT_POLICY, SetBy, effective_us, insert_if_absent,
    per_whole_seconds,
};
use crate::{Decision, PolicyDecision, Quota, middleware::inline_text::InlineText};

/// Limit, remaining, reset.
const DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Writes the fields of the most restrictive policy. `policy`: the value of
/// `RateLimit-Policy`, if it is known.
pub(super) fn write(
    decision: &Decision,
    format: HeaderFormat,
    policy: Option<&HeaderValue>,
    headers: &mut HeaderMap,
    existing: SetBy,
) {
    let Some(reported) = decision.binding() else {
        return;
    };
    let (names, policy_name): (&[HeaderName], _) = match format {
        HeaderFormat::Draft7 => (&[RATELIMIT], Some(RATELIMIT_POLICY)),
        HeaderFormat::Draft6 => (&DRAFT_6, Some(RATELIMIT_POLICY)),
        HeaderFormat::XRateLimitEpoch | HeaderFormat::XRateLimitDelta => (&X_RATELIMIT, None),
        // Neither reports one policy.
        HeaderFormat::Draft10 | HeaderFormat::None => return,
    };
    let exists = |name: &HeaderName| headers.contains_key(name);
    if existing == SetBy::InnerService && names.iter().chain(&policy_name).any(exists) {
        return;
    }
    // A banned caller may send nothing.
    let limit = match reported.is_of_penalty() {
        true => 0,
        false => reported.capacity(),
    };
    let remaining = reported.remaining();
    let reset_s = reset_us(format, reported).map(|us| us.div_ceil(1_000_000));
    if format == HeaderFormat::Draft7 {
        let value = combined_field(limit, remaining, reset_s);
        insert_if_absent(headers, RATELIMIT, value);
    } else {
        for (name, number) in names.iter().zip([Some(limit), Some(remaining), reset_s]) {
            let value =
                number.and_then(|number| InlineText::default().push_number(number).to_value());
            insert_if_absent(headers, name.clone(), value);
        }
    }
    if let Some(name) = policy_name.filter(|_| !reported.is_of_penalty()) {
        let policy = match policy {
            Some(known) => Some(known.clone()),
            None => policy_field(reported.quota()),
        };
        insert_if_absent(headers, name, policy);
    }
}

fn reset_us(format: HeaderFormat, policy: &PolicyDecision) -> Option<u64> {
    match format {
        HeaderFormat::XRateLimitEpoch => {
            Some(policy.decided_at_us().saturating_add(full_us(policy)?))
        }
        HeaderFormat::XRateLimitDelta => full_us(policy),
        _ => effective_us(policy),
    }
}

/// Returns the single field of draft 7.
fn combined_field(limit: u64, remaining: u64, reset_s: Option<u64>) -> Option<HeaderValue> {
    let mut text = InlineText::default();
    text.push("limit=").push_number(limit);
    text.push(", remaining=").push_number(remaining);
    if let Some(reset_s) = reset_s {
        text.push(", reset=").push_number(reset_s);
    }
    text.to_value()
}

/// Returns the time until all units are back. `None` if units do not come back with time
/// or waiting does not help the request.
fn full_us(policy: &PolicyDecision) -> Option<u64> {
    let quota = policy.quota();
    let comes_back = !quota.is_concurrency() && quota.limit() > 0;
    let is_of_use = comes_back && policy.retry_us().is_some();
    is_of_use.then(|| u64::try_from(policy.reset_after().as_micros()).unwrap_or(u64::MAX))
}

/// Returns `RateLimit-Policy` in the syntax of these drafts.
pub(super) fn policy_field(quota: Quota) -> Option<HeaderValue> {
    let (units, window_s) = per_whole_seconds(quota);
    let mut text = InlineText::default();
    text.push_number(units);
    if let Some(window_s) = window_s {
        text.push(";w=").push_number(window_s);
    }
    if quota.capacity() != units && !quota.paces() {
        text.push(";burst=").push_number(quota.capacity());
    }
    text.to_value()
}
