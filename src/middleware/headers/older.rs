//! The forms that tell of one policy only.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    Existing, Headers, RATELIMIT, RATELIMIT_POLICY, add_one, effective_us, per_whole_seconds,
};
use crate::{Decision, PolicyDecision, Quota, middleware::text::Text};

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

/// The policy that binds, as a form tells of it.
pub(super) struct Binding {
    form: Headers,
    limit: u64,
    remaining: u64,
    reset_s: Option<u64>,
    policy: Option<HeaderValue>,
}

impl Binding {
    /// `policy`: the value of `RateLimit-Policy`, where it is known before.
    pub(super) fn of(
        decision: &Decision,
        form: Headers,
        policy: Option<&HeaderValue>,
    ) -> Option<Self> {
        let binding = decision.binding()?;
        let reset_us = match form {
            Headers::XRateLimitEpoch => {
                full_us(binding).map(|full_us| decision.decided_at_us().saturating_add(full_us))
            }
            Headers::XRateLimitDelta => full_us(binding),
            _ => effective_us(binding),
        };
        Some(Self {
            form,
            limit: binding.limit(),
            remaining: binding.remaining(),
            reset_s: reset_us.map(|us| us.div_ceil(1_000_000)),
            policy: match (form, policy) {
                (Headers::XRateLimitDelta | Headers::XRateLimitEpoch, _) => None,
                (_, Some(known)) => Some(known.clone()),
                (_, None) => self::policy(binding.quota()),
            },
        })
    }

    pub(super) fn add_to(self, headers: &mut HeaderMap, existing: Existing) {
        let (limits, policy): (&[HeaderName], _) = match self.form {
            Headers::Draft7 => (&[RATELIMIT], Some(RATELIMIT_POLICY)),
            Headers::Draft6 => (&DRAFT_6, Some(RATELIMIT_POLICY)),
            _ => (&X_RATELIMIT, None),
        };
        let is_there = |name: &HeaderName| headers.contains_key(name);
        if existing == Existing::IsFromInside && limits.iter().chain(&policy).any(is_there) {
            return;
        }
        match self.form {
            Headers::Draft7 => add_one(headers, RATELIMIT, self.in_one_field()),
            Headers::Draft6 => self.add_three(headers, DRAFT_6),
            _ => self.add_three(headers, X_RATELIMIT),
        }
        add_one(headers, RATELIMIT_POLICY, self.policy);
    }

    fn in_one_field(&self) -> Option<HeaderValue> {
        let mut text = Text::default();
        text.push("limit=").number(self.limit);
        text.push(", remaining=").number(self.remaining);
        if let Some(reset_s) = self.reset_s {
            text.push(", reset=").number(reset_s);
        }
        text.value()
    }

    fn add_three(&self, headers: &mut HeaderMap, names: [HeaderName; 3]) {
        let numbers = [Some(self.limit), Some(self.remaining), self.reset_s];
        for (name, number) in names.into_iter().zip(numbers) {
            let value = number.and_then(|number| Text::default().number(number).value());
            add_one(headers, name, value);
        }
    }
}

/// The time until all units are back; `None` if they do not come back with time, or if
/// waiting does not help the request.
fn full_us(policy: &PolicyDecision) -> Option<u64> {
    let quota = policy.quota();
    let comes_back = !quota.is_concurrency() && quota.limit() > 0;
    let is_of_use = comes_back && policy.retry_us().is_some();
    is_of_use.then(|| u64::try_from(policy.reset_after().as_micros()).unwrap_or(u64::MAX))
}

/// `RateLimit-Policy` in the form of these drafts.
pub(super) fn policy(quota: Quota) -> Option<HeaderValue> {
    let (units, window_s) = per_whole_seconds(quota);
    let mut text = Text::default();
    text.number(units);
    if let Some(window_s) = window_s {
        text.push(";w=").number(window_s);
    }
    if quota.capacity() != units && !quota.paces() {
        text.push(";burst=").number(quota.capacity());
    }
    text.value()
}
