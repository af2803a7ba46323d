//! The tables of callers: recent denials, and those denied most.

use maud::{Markup, html};

use super::{
    View,
    card::{Table, card},
    text::{foreign, since},
    words::{count, duration, plural},
};
use crate::api::numbers::{Denial, Top};

/// How many different denials are shown.
const MOST_DENIALS: usize = 50;

/// Shows a caller as a button that looks it up, with and without scripts.
pub(super) fn caller(
    limiter: Option<&str>,
    policy: &str,
    fingerprint: &str,
    name: Option<&str>,
) -> Markup {
    let link = serde_json::to_string(&(policy, limiter, fingerprint)).unwrap_or_default();
    html! {
        button.link type="submit" form="ask" formnovalidate name="link" value=(link)
            aria-label={ "Look up " (name.unwrap_or(fingerprint)) " in " (policy) } {
            @match name {
                Some(name) => (foreign(name)),
                None => code title=(fingerprint) { (fingerprint.get(..10).unwrap_or(fingerprint)) "…" },
            }
        }
    }
}

/// Shows equal denials together. The list keeps still while somebody points at it.
pub(super) fn denials(denials: &[Denial], missed: u64, view: &View) -> Markup {
    let mut groups: Vec<(&Denial, u64)> = Vec::new();
    for denial in denials {
        match groups.iter_mut().find(|(other, _)| other.is_like(denial)) {
            Some((_, times)) => *times += 1,
            None => groups.push((denial, 1)),
        }
    }
    groups.truncate(MOST_DENIALS);
    let rows = groups
        .into_iter()
        .map(|(denial, times)| denial_row(denial, times, view));
    let table = Table {
        id: "denials",
        columns: &["Caller", "Why", "Request", "#Last"],
        is_list: true,
        none: "No denial yet.",
        rows: rows.collect(),
    };
    let note = html! {
        "equal ones together"
        @if missed > 0 { ", " (plural(missed, "more is", "more are")) " in no list" }
    };
    card("denials", "Recent denials", note, table.render())
}

fn denial_row(denial: &Denial, times: u64, view: &View) -> Markup {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for one in &denial.callers {
        let Some(fingerprint) = one.fingerprint.as_deref() else {
            continue;
        };
        if known.iter().all(|(_, other)| *other != fingerprint) {
            known.push((&one.policy, fingerprint));
        }
    }
    let policies: Vec<_> = denial
        .callers
        .iter()
        .map(|one| one.policy.as_str())
        .collect();
    let prints: Vec<_> = known.iter().map(|(_, one)| *one).collect();
    let route = denial.route.as_deref();
    let key = (
        &denial.limiter,
        denial.reason,
        denial.method,
        route,
        &policies,
        prints,
    );
    html! {
        tr data-key=(serde_json::to_string(&key).unwrap_or_default()) {
            th scope="row" {
                @if known.is_empty() { "unknown" }
                @for (policy, fingerprint) in known { (caller(Some(&denial.limiter), policy, fingerprint, None)) " " }
            }
            td {
                span.bad { (reason(denial.reason)) }
                small { @for (index, policy) in policies.iter().enumerate() { @if index > 0 { ", " } (foreign(policy)) } }
            }
            td {
                @if let Some(method) = denial.method { (method) " " }
                @if let Some(route) = route { (foreign(route)) }
                small {
                    @match denial.retry_after_ms {
                        Some(wait_ms) => { "wait " (duration(wait_ms)) },
                        None => "waiting does not help",
                    }
                }
            }
            td.number {
                (since(denial.at_ms, view.status.now_ms))
                @if times > 1 { small { (count(times)) " times" } }
            }
        }
    }
}

/// Returns why a request was denied, in words.
pub(super) fn reason(reason: &'static str) -> &'static str {
    match reason {
        "quota_exceeded" => "no room",
        "cost_impossible" => "can never fit",
        "key_missing" => "no key",
        "listed" => "on the deny list",
        "store_failed" => "store failed",
        other => other,
    }
}

pub(super) fn top(view: &View) -> Markup {
    let table = Table {
        id: "top",
        columns: &["Caller", "Policy", "#Denials", "#Last"],
        is_list: true,
        none: "No caller has been denied.",
        rows: view.top.iter().map(|one| top_row(one, view)).collect(),
    };
    let note = html! { "counts are halved every ten minutes" };
    card("top", "Denied most", note, table.render())
}

fn top_row(one: &Top, view: &View) -> Markup {
    html! {
        tr data-key={ (one.limiter) "/" (one.policy) "/" (one.shadow) "/" (one.fingerprint) } {
            th scope="row" { (caller(Some(&one.limiter), &one.policy, &one.fingerprint, one.name.as_deref())) }
            td {
                (foreign(&one.policy))
                @if one.shadow { small { "would be denied" } }
                @if view.has_several_limiters() { " " span.note { (foreign(&one.limiter)) } }
            }
            td.number { (count(one.at_least())) @if one.error > 0 { small { "up to " (count(one.count)) } } }
            td.number { (since(one.last_seen_ms, view.status.now_ms)) }
        }
    }
}
