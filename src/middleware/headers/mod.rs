//! A decision as header fields.

mod lists;
mod older;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::{lists::Lists, older::Binding};
use super::{
    layer::{Answers, HeadersWhen},
    policy::Rule,
    text,
};
use crate::{Decision, PolicyDecision, Quota};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which header fields report the limits to clients.
///
/// The IETF drafts and the older forms use some of the same names for other
/// things, so a layer sends exactly one form. All but the list report one policy: the
/// one that refused with the longest wait, or else the one with the fewest
/// units left. If the response of an inner layer or service has one of a form's fields,
/// those stay and none is added: fields of two sources would be
/// untrue together. Only lists are appended to other lists. So give stacked layers one
/// form.
///
/// # What the reset means
///
/// | form | an allowed response | a denial |
/// |---|---|---|
/// | [`Draft10`](Self::Draft10), [`Draft7`](Self::Draft7), [`Draft6`](Self::Draft6) | seconds over which the remaining units may be spread with none of them refused: of a bucket, fewer as units are used up | seconds until the request has room |
/// | [`XRateLimitEpoch`](Self::XRateLimitEpoch) | the time at which all units are back, if the caller uses no more: never earlier as units are used up | the same |
/// | [`XRateLimitDelta`](Self::XRateLimitDelta) | seconds until that time | the same |
///
/// All are rounded up. `Retry-After` is the wait of a denied request in every form, so it
/// is shorter than an `X-RateLimit-Reset`, unless all units come back at once. No reset is
/// sent if no wait helps, or under a [`Concurrency`](crate::Concurrency) policy, whose
/// units come back at unknown times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=60;t=36`:
    /// the lists of draft-ietf-httpapi-ratelimit-headers-08 to -11, by the text
    /// of -10. All policies, of stacked layers too. This is the default.
    ///
    /// `t` is the time within which at most `r` may be used. A bucket whose
    /// burst differs from its limit says so in `tt-burst`.
    #[default]
    Draft10,
    /// `RateLimit: limit=100, remaining=60, reset=36` and
    /// `RateLimit-Policy: 100;w=60`: draft -07.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and
    /// `RateLimit-Policy: 100;w=60`: drafts -04 to -06.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as GitHub
    /// sends them: the reset is the time at which all units are back, in seconds since
    /// the UNIX epoch. A client that waits until then has its whole limit again.
    XRateLimitEpoch,
    /// The same with `X-RateLimit-Reset` in seconds from now.
    XRateLimitDelta,
    /// None. `Retry-After` is sent all the same.
    None,
}

/// The fields that tell of a decision. They are worked out before there is a
/// response, as they are smaller than the decision and need no settings any more.
pub(super) struct Fields {
    told: Option<Told>,
    when: Option<Arc<HeadersWhen>>,
}

enum Told {
    OfAll(Lists),
    OfOne(Binding),
}

/// Who set the fields that a response has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// A layer or service inside: our lists come behind theirs, and of what is no list
    /// ours stay away.
    IsFromInside,
    /// The user's hook, which leaves to us what it did not set.
    IsFromHook,
}

impl Fields {
    /// `known`: `RateLimit-Policy`, if it is the same for every decision.
    #[inline]
    pub(super) fn of(decision: &Decision, answers: &Answers, known: Option<&HeaderValue>) -> Self {
        let when = answers.headers_when.as_ref();
        Self {
            told: match answers.headers {
                Headers::None => None,
                Headers::Draft10 => Some(Told::OfAll(Lists::of(decision, known))),
                form => Binding::of(decision, form, known).map(Told::OfOne),
            },
            when: when.map(|when| Arc::clone(&when.0)),
        }
    }

    /// Adds them to a response of the inner service, if they are wanted there.
    pub(super) fn add_to_forwarded(self, status: StatusCode, headers: &mut HeaderMap) {
        let wanted = self.when.as_ref();
        if wanted.is_none_or(|wanted| wanted(status, headers)) {
            self.add_to(headers, Existing::IsFromInside);
        }
    }

    pub(super) fn add_to(self, headers: &mut HeaderMap, existing: Existing) {
        match self.told {
            Some(Told::OfAll(lists)) => lists.add_to(headers, existing),
            Some(Told::OfOne(binding)) => binding.add_to(headers, existing),
            None => {}
        }
    }
}

/// `RateLimit-Policy` of a request to which all policies apply, where it never
/// changes.
pub(super) fn constant_policy(form: Headers, rules: &[Rule]) -> Option<HeaderValue> {
    if !rules.iter().all(Rule::is_constant) {
        return None;
    }
    let mut quotas = rules
        .iter()
        .map(|rule| (&rule.base.name, *rule.base.demand.quota));
    let value = match form {
        Headers::Draft10 => lists::policies(quotas),
        Headers::Draft6 | Headers::Draft7 if rules.len() == 1 => {
            quotas.next().and_then(|(_, quota)| older::policy(quota))
        }
        _ => None,
    };
    value.map(|value| text::for_ever(&value).unwrap_or(value))
}

/// The innermost layer has the word.
pub(super) fn add_one(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.entry(name).or_insert(value);
    }
}

/// The wait where it refused; else the time within which what remains may be
/// used; none where waiting is of no use, or nobody knows for how long.
fn effective_us(policy: &PolicyDecision) -> Option<u64> {
    if policy.quota().is_concurrency() {
        return None;
    }
    match policy.retry_us() {
        Some(0) => Some(policy.effective_window_us()),
        other => other,
    }
}

/// The quota in whole seconds, never looser than it is. No seconds where units
/// do not come back with time.
fn per_whole_seconds(quota: Quota) -> (u64, Option<u64>) {
    if quota.is_concurrency() || (quota.limit() == 0 && quota.capacity() > 0) {
        return (quota.capacity(), None);
    }
    let period_ns = quota.period().as_nanos().max(1);
    let window_s = period_ns.div_ceil(1_000_000_000);
    let units = u128::from(quota.limit()) * window_s * 1_000_000_000 / period_ns;
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    (narrow(units), Some(narrow(window_s)))
}
