//! The tables of callers: recent denials, and those denied most.

use maud::{Markup, html};
use tower_throttle::{Offender, RecentDenial};

use super::{
    View,
    card::Table,
    text::{foreign, json, since},
    words::{count, duration, plural},
};
use crate::{
    api::numbers::{self, callers, reason},
    time::ms,
};

/// How many different denials are shown.
const MOST_DENIALS: usize = 50;
/// How many callers that are denied most are shown.
const MOST_OFFENDERS: usize = 20;

/// Shows a caller as a button that looks it up, with and without scripts.
///
/// `of`: its policy, perhaps its limiter, and its fingerprint.
pub(super) fn caller(of: (&str, Option<&str>, &str), name: Option<&str>) -> Markup {
    let (policy, _, fingerprint) = of;
    html! {
        button.link type="submit" form="ask" formnovalidate name="link" value=(json(&of))
            aria-label={ "Look up " (name.unwrap_or(fingerprint)) " in " (policy) } {
            @match name {
                Some(name) => (foreign(name)),
                None => code title=(fingerprint) { (fingerprint.get(..10).unwrap_or(fingerprint)) "…" },
            }
        }
    }
}

/// Shows equal denials together. The list keeps still while the pointer is on it.
pub(super) fn denials(view: &View) -> Markup {
    let mut groups: Vec<(String, (String, RecentDenial), u64)> = Vec::new();
    for denial in numbers::denials(&view.inspected, 0) {
        let key = key_of(&denial);
        match groups.iter_mut().find(|(other, ..)| *other == key) {
            Some((.., times)) => *times += 1,
            None => groups.push((key, denial, 1)),
        }
    }
    groups.truncate(MOST_DENIALS);
    let missed = view.inspected.iter().map(|one| one.top_denied(0).missed);
    let table = Table {
        id: "denials",
        title: "Recent denials",
        note: note(missed.sum()),
        columns: &["Caller", "Why", "Request", "#Last"],
        is_list: true,
        none: "No denial yet.",
        rows: groups.iter().map(denial_row).collect(),
    };
    table.render(&html! {})
}

/// Says how many denials are in no list.
pub(super) fn note(missed: u64) -> Markup {
    html! {
        "equal ones together"
        @if missed > 0 { ", " (plural(missed, "more is", "more are")) " in no list" }
    }
}

/// Returns what equal denials share.
fn key_of((limiter, denial): &(String, RecentDenial)) -> String {
    let request = (denial.reason, denial.method, &denial.route);
    format!(
        "{:?}",
        (limiter, request, &denial.policies, &denial.fingerprints)
    )
}

fn denial_row((key, (limiter, denial), times): &(String, (String, RecentDenial), u64)) -> Markup {
    let mut known: Vec<(&str, String)> = Vec::new();
    for (policy, fingerprint) in callers(denial) {
        let fingerprint = fingerprint.filter(|one| known.iter().all(|(_, other)| other != one));
        known.extend(fingerprint.map(|one| (policy, one)));
    }
    html! {
        tr data-key=(key) {
            th scope="row" {
                @if known.is_empty() { "unknown" }
                @for (policy, fingerprint) in known { (caller((policy, Some(limiter), &fingerprint), None)) " " }
            }
            td {
                span.bad { (reason(denial.reason).1) }
                small { @for (index, policy) in denial.policies.iter().enumerate() { @if index > 0 { ", " } (foreign(policy)) } }
            }
            td {
                @if let Some(method) = denial.method { (method) " " }
                @if let Some(route) = &denial.route { (foreign(route)) }
                small {
                    @match denial.retry_after {
                        Some(wait) => { "wait " (duration(ms(wait))) },
                        None => "waiting does not help",
                    }
                }
            }
            td.number {
                (since(denial.at))
                @if *times > 1 { small { (count(*times)) " times" } }
            }
        }
    }
}

pub(super) fn top(view: &View) -> Markup {
    let top = numbers::top(&view.inspected, MOST_OFFENDERS);
    let table = Table {
        id: "top",
        title: "Denied most",
        note: html! { "counts are halved every ten minutes" },
        columns: &["Caller", "Policy", "#Denials", "#Last"],
        is_list: true,
        none: "No caller has been denied.",
        rows: top.iter().map(|one| top_row(one, view)).collect(),
    };
    table.render(&html! {})
}

fn top_row((limiter, one): &(String, Offender), view: &View) -> Markup {
    let fingerprint = one.fingerprint.to_string();
    html! {
        tr data-key={ (limiter) "/" (one.policy) "/" (one.shadow) "/" (fingerprint) } {
            th scope="row" { (caller((&one.policy, Some(limiter), &fingerprint), one.name.as_deref())) }
            td {
                (foreign(&one.policy))
                @if one.shadow { small { "would be denied" } }
                @if view.has_several_limiters() { " " span.note { (foreign(limiter)) } }
            }
            td.number { (count(one.at_least())) @if one.error > 0 { small { "up to " (count(one.count)) } } }
            td.number { (since(one.last_seen)) }
        }
    }
}
