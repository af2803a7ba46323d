//! `RateLimit-Policy` and `RateLimit` as lists of all policies.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Existing, RATELIMIT, RATELIMIT_POLICY, add_one, effective_us, per_whole_seconds};
use crate::{Decision, PolicyDecision, Quota, Verdict, middleware::text::Text, policy_name::Name};

/// The values of both.
pub(super) struct Lists {
    policies: Option<HeaderValue>,
    limits: Option<HeaderValue>,
}

impl Lists {
    /// `policies`: the first, where it is known before.
    pub(super) fn of(decision: &Decision, policies: Option<&HeaderValue>) -> Self {
        Self {
            policies: match policies {
                Some(known) => Some(known.clone()),
                None => list(decision.policies(), policy_item),
            },
            limits: if decision.is_allowed() {
                list(decision.policies(), limit_item)
            } else {
                list(decision.refused(), |policy, text| {
                    refused_item(policy, decision.verdict(), text);
                })
            },
        }
    }

    #[inline]
    pub(super) fn add_to(self, headers: &mut HeaderMap, existing: Existing) {
        // Headers are few: to look at all takes less than to look two up.
        if existing == Existing::IsFromInside && headers.iter().any(is_no_list) {
            return;
        }
        add(headers, RATELIMIT_POLICY, self.policies, existing);
        add(headers, RATELIMIT, self.limits, existing);
    }
}

/// Whether a line is of one of these fields and does not begin as ours do, with a
/// string: one that is no list makes the whole field void. Those of the older drafts
/// begin with a number or a name.
#[inline]
fn is_no_list((name, line): (&HeaderName, &HeaderValue)) -> bool {
    matches!(name.as_str(), "ratelimit" | "ratelimit-policy")
        && !line.as_bytes().trim_ascii_start().starts_with(b"\"")
}

/// Layers add to a list.
fn add(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>, existing: Existing) {
    match (existing, value) {
        (Existing::IsFromInside, Some(value)) => drop(headers.append(name, value)),
        (_, value) => add_one(headers, name, value),
    }
}

/// `RateLimit-Policy` for quotas that never change.
pub(super) fn policies<'a>(quotas: impl Iterator<Item = (&'a Name, Quota)>) -> Option<HeaderValue> {
    list(quotas, |(name, quota), text| {
        quota_item(&name.quoted, quota, None, text);
    })
}

fn list<T>(items: impl Iterator<Item = T>, write: impl Fn(T, &mut Text)) -> Option<HeaderValue> {
    let mut text = Text::default();
    for item in items {
        if !text.is_empty() {
            text.push(", ");
        }
        write(item, &mut text);
    }
    text.value()
}

fn policy_item(policy: &PolicyDecision, text: &mut Text) {
    quota_item(
        policy.quoted_name(),
        policy.quota(),
        policy.partition(),
        text,
    );
}

fn quota_item(quoted_name: &str, quota: Quota, partition: Option<&[u8; 12]>, text: &mut Text) {
    let (units, window_s) = per_whole_seconds(quota);
    text.push(quoted_name).push(";q=").number(units);
    if let Some(window_s) = window_s {
        text.push(";w=").number(window_s);
    }
    if quota.is_concurrency() {
        text.push(";qu=\"concurrent-requests\"");
    }
    if quota.capacity() != units && !quota.paces() {
        text.push(";tt-burst=").number(quota.capacity());
    }
    text.partition(partition);
}

fn limit_item(policy: &PolicyDecision, text: &mut Text) {
    standing_item(policy, effective_us(policy), text);
}

/// Where one policy makes the request impossible, no wait at another helps.
fn refused_item(policy: &PolicyDecision, verdict: Verdict, text: &mut Text) {
    let wait_us = effective_us(policy).filter(|_| verdict != Verdict::Impossible);
    standing_item(policy, wait_us, text);
}

fn standing_item(policy: &PolicyDecision, effective_us: Option<u64>, text: &mut Text) {
    text.push(policy.quoted_name())
        .push(";r=")
        .number(policy.remaining());
    if let Some(us) = effective_us {
        text.push(";t=").number(us.div_ceil(1_000_000));
    }
    text.partition(policy.partition());
}
