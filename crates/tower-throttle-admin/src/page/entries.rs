//! The table of what was changed by hand: the entries of the control document.

use maud::{Markup, html};
use tower_throttle::control::{Action, Entry};

use super::{
    View,
    callers::caller,
    card::Table,
    text::{Tone, badge, foreign, json, since, until},
    words::count,
};
use crate::api::policies::{entries, subject};

/// How many entries are shown. A document may have 10,000.
const MOST_ENTRIES: usize = 500;

pub(super) fn table(view: &View) -> Markup {
    let entries = entries(view.shared.control.as_ref());
    let older = entries.len().saturating_sub(MOST_ENTRIES);
    let rows = entries.iter().skip(older);
    let table = Table {
        id: "entries",
        title: "Changed by hand",
        note: html! { @if older > 0 { "the latest " (MOST_ENTRIES) " of " (count(entries.len() as u64)) } },
        columns: match view.shared.changes {
            true => &["Change", "By", "Ends", "Remove*"],
            false => &["Change", "By", "Ends"],
        },
        none: "Nothing is changed by hand.",
        rows: rows.map(|entry| row(entry, view)).collect(),
        ..Table::default()
    };
    table.render(&html! { div id="entries-outcome" {} })
}

fn row(entry: &Entry, view: &View) -> Markup {
    let (kind, policy, print) = subject(entry);
    let print = print.map(|print| print.to_string());
    let as_json = |print| format!("\"fingerprint:{print}\"");
    let range = match &entry.action {
        Action::ListIp { range, .. } => Some(&**range),
        _ => None,
    };
    let label = entry.label.as_deref().or(range);
    let subject = label.or(print.as_deref()).or(policy).unwrap_or_default();
    html! {
        tr data-key=(json(&(kind, policy, &print, range))) data-policy=[policy] data-caller=[print.as_ref().map(as_json)]
            data-subject=(subject) data-now=(kind) data-outcome="entries-outcome" {
            th scope="row" {
                (what(entry))
                small {
                    @match (policy, &print) {
                        (Some(policy), Some(print)) => { (caller((policy, None, print), label)) " in " },
                        _ => @if let Some(label) = label { (foreign(label)) " " },
                    }
                    @if let Some(policy) = policy { (foreign(policy)) }
                }
            }
            td {
                (author(entry)) small { (since(entry.created)) }
                @if let Some(reason) = &entry.reason { small { (foreign(reason)) } }
            }
            td { (end(entry)) }
            @if view.shared.changes {
                td.number.scripted {
                    @if let Some(call) = removal(kind) {
                        button.small type="button" data-change="remove" data-call=(call)
                            aria-label={ "Remove: " (kind) " of " (subject) } { "Remove…" }
                    }
                }
            }
        }
    }
}

/// Returns the call that removes an entry, if the API has one.
fn removal(kind: &str) -> Option<&'static str> {
    match kind {
        "ban" => Some("unban"),
        "override" => Some("clear-override"),
        "mode" => Some("clear-mode"),
        _ => None,
    }
}

/// Shows what an entry changes.
pub(super) fn what(entry: &Entry) -> Markup {
    let kind = subject(entry).0;
    let tone = match kind {
        "ban" => Tone::Bad,
        _ => Tone::Quiet,
    };
    html! {
        (badge(tone, kind)) " "
        @match &entry.action {
            Action::Ban { .. } => "denies all requests",
            Action::Override { quota, .. } => (quota),
            Action::Mode { mode, .. } => (mode.name()),
            Action::ListIp { list, .. } => { "on the " (list.name()) " list" },
            Action::ListKey { list, .. } => { "on the " (list.name()) " list by key" },
            _ => {},
        }
    }
}

pub(super) fn author(entry: &Entry) -> Markup {
    foreign(entry.author.as_deref().unwrap_or("an operator"))
}

pub(super) fn end(entry: &Entry) -> Markup {
    html! { @match entry.until { Some(end) => (until(end)), None => "when removed" } }
}
