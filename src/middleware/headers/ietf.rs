//! `RateLimit-Policy` and `RateLimit` as lists of all policies.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    RATELIMIT, RATELIMIT_POLICY, SetBy, effective_us, insert_if_absent, per_whole_seconds,
};
use crate::{
    Decision, PolicyDecision, Quota, Verdict, middleware::inline_text::InlineText,
    policy_name::Name, util::interned::Interned,
};

/// Writes both fields. `policy`: the value of the first field, if it is known. `with_shadows`:
/// whether shadow policies are listed behind the others.
pub(super) fn write(
    decision: &Decision,
    policy: Option<&HeaderValue>,
    with_shadows: bool,
    headers: &mut HeaderMap,
    existing: SetBy,
) {
    // One pass over all headers is faster than two lookups.
    if existing == SetBy::InnerService && headers.iter().any(is_no_list) {
        return;
    }
    let granting = |write: fn(&PolicyDecision, &mut InlineText)| match with_shadows {
        true => {
            let policies = decision.policies().chain(decision.shadow_policies());
            list(policies.filter(grants), write)
        }
        false => list(decision.policies().filter(grants), write),
    };
    let policy = match policy {
        Some(known) => Some(known.clone()),
        None => granting(write_policy),
    };
    add(headers, RATELIMIT_POLICY, policy, existing);
    let limits = if decision.is_allowed() {
        granting(write_limit)
    } else {
        list(decision.denied_by(), |policy, text| {
            write_denied_limit(policy, decision.verdict(), text);
        })
    };
    add(headers, RATELIMIT, limits, existing);
}

/// Returns whether a policy grants units. A penalty grants none: a client would take its numbers
/// for requests that it may send. It is listed only while it denies.
fn grants(policy: &&PolicyDecision) -> bool {
    !policy.is_of_penalty()
}

/// Whether a line of one of these fields is not a list, which makes the whole field
/// void. Lists start with a string; the fields of older drafts start with a number or a
/// name.
fn is_no_list((name, line): (&HeaderName, &HeaderValue)) -> bool {
    matches!(name.as_str(), "ratelimit" | "ratelimit-policy")
        && !line.as_bytes().trim_ascii_start().starts_with(b"\"")
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>, existing: SetBy) {
    match (existing, value) {
        (SetBy::InnerService, Some(value)) => drop(headers.append(name, value)),
        (_, value) => insert_if_absent(headers, name, value),
    }
}

/// Returns `RateLimit-Policy` for quotas that never change.
pub(super) fn policy_field(policies: &[(Name, Interned<Quota>)]) -> Option<HeaderValue> {
    let granting = policies.iter();
    let granting = granting.filter(|(_, quota)| quota.penalty().is_none());
    list(granting, |(name, quota), text| {
        write_quota(&name.quoted, **quota, None, text);
    })
}

fn list<T>(
    items: impl Iterator<Item = T>,
    write: impl Fn(T, &mut InlineText),
) -> Option<HeaderValue> {
    let mut text = InlineText::default();
    for item in items {
        if !text.is_empty() {
            text.push(", ");
        }
        write(item, &mut text);
    }
    text.to_value()
}

fn write_policy(policy: &PolicyDecision, text: &mut InlineText) {
    write_quota(
        policy.quoted_name(),
        policy.quota(),
        policy.partition(),
        text,
    );
}

fn write_quota(
    quoted_name: &str,
    quota: Quota,
    partition_key: Option<&[u8; 12]>,
    text: &mut InlineText,
) {
    let (units, window_s) = per_whole_seconds(quota);
    text.push(quoted_name).push(";q=").push_number(units);
    if let Some(window_s) = window_s {
        text.push(";w=").push_number(window_s);
    }
    if quota.is_concurrency() {
        text.push(";qu=\"concurrent-requests\"");
    }
    if quota.capacity() != units && !quota.paces() {
        text.push(";tt-burst=").push_number(quota.capacity());
    }
    write_partition_key(partition_key, text);
}

fn write_limit(policy: &PolicyDecision, text: &mut InlineText) {
    write_remaining(policy, effective_us(policy), text);
}

/// If one policy makes the request impossible, waiting for another one does not help.
fn write_denied_limit(policy: &PolicyDecision, verdict: Verdict, text: &mut InlineText) {
    let wait_us = effective_us(policy).filter(|_| verdict != Verdict::Impossible);
    write_remaining(policy, wait_us, text);
}

fn write_remaining(policy: &PolicyDecision, effective_us: Option<u64>, text: &mut InlineText) {
    text.push(policy.quoted_name())
        .push(";r=")
        .push_number(policy.remaining());
    if let Some(us) = effective_us {
        text.push(";t=").push_number(us.div_ceil(1_000_000));
    }
    write_partition_key(policy.partition(), text);
}

fn write_partition_key(partition_key: Option<&[u8; 12]>, text: &mut InlineText) {
    if let Some(partition_key) = partition_key {
        let encoded = STANDARD.encode(partition_key);
        text.push(";pk=:").push(&encoded).push(":");
    }
}
