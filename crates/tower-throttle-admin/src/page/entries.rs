//! The table of what was changed by hand: the entries of the control document.

use maud::{Markup, html};

use super::{
    View,
    callers::caller,
    card::{Table, card},
    tables::author,
    text::{Tone, badge, foreign, since, until},
    words::count,
};
use crate::api::policies::ControlEntry;

/// How many entries are shown. A document may have 10,000.
const MOST_ENTRIES: usize = 500;

pub(super) fn entries(entries: &[ControlEntry], view: &View) -> Markup {
    let changes = view.status.changes;
    let older = entries.len().saturating_sub(MOST_ENTRIES);
    let rows = entries.iter().skip(older);
    let table = Table {
        id: "entries",
        columns: if changes {
            &["Change", "By", "Ends", "Remove*"]
        } else {
            &["Change", "By", "Ends"]
        },
        is_list: false,
        none: "Nothing is changed by hand.",
        rows: rows
            .map(|entry| entry_row(entry, changes, view.status.now_ms))
            .collect(),
    };
    let note = html! { @if older > 0 { "the latest " (MOST_ENTRIES) " of " (count(entries.len() as u64)) } };
    let content = html! { (table.render()) div id="entries-outcome" {} };
    card("entries", "Changed by hand", note, content)
}

fn entry_row(entry: &ControlEntry, changes: bool, now_ms: u64) -> Markup {
    let policy = entry.policy.as_deref();
    let print = entry.fingerprint.as_deref();
    let label = entry.label.as_deref().or(entry.range.as_deref());
    let subject = label.or(print).or(policy).unwrap_or_default();
    let caller_json = print.map(|print| format!("\"fingerprint:{print}\""));
    let key = serde_json::to_string(&(entry.kind, policy, print, entry.range.as_deref()));
    html! {
        tr data-key=(key.unwrap_or_default()) data-policy=[policy] data-caller=[caller_json]
            data-subject=(subject) data-now=(entry.kind) data-outcome="entries-outcome" {
            th scope="row" {
                (what(entry))
                small {
                    @match (policy, print) {
                        (Some(policy), Some(print)) => { (caller(None, policy, print, label)) " in " },
                        _ => @if let Some(label) = label { (foreign(label)) " " },
                    }
                    @if let Some(policy) = policy { (foreign(policy)) }
                }
            }
            td {
                (author(entry)) small { (since(entry.created_ms, now_ms)) }
                @if let Some(reason) = &entry.reason { small { (foreign(reason)) } }
            }
            td { @match entry.until_ms { Some(until_ms) => (until(until_ms, now_ms)), None => "when removed" } }
            @if changes {
                td.number.scripted {
                    @if let Some(call) = removal(entry.kind) {
                        button.small type="button" data-change="remove" data-call=(call)
                            aria-label={ "Remove: " (entry.kind) " of " (subject) } { "Remove…" }
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
pub(super) fn what(entry: &ControlEntry) -> Markup {
    let tone = if entry.kind == "ban" {
        Tone::Bad
    } else {
        Tone::Quiet
    };
    html! {
        (badge(tone, entry.kind)) " "
        @if entry.kind == "ban" { "denies all requests" }
        @if let Some(quota) = &entry.quota { (quota) }
        @if let Some(mode) = entry.mode { (mode) }
        @if let Some(list) = entry.list { "on the " (list) " list" @if entry.range.is_none() { " by key" } }
    }
}
