//! The table of what was changed by hand: the entries of the control document.

use maud::{Markup, html};

use super::{
    View,
    callers::caller,
    card::Table,
    tables::author,
    text::{Tone, badge, foreign, json, since, until},
    words::count,
};
use crate::api::{policies::ControlEntry, status::Status};

/// How many entries are shown. A document may have 10,000.
const MOST_ENTRIES: usize = 500;

pub(super) fn entries(entries: &[ControlEntry], view: &View) -> Markup {
    let older = entries.len().saturating_sub(MOST_ENTRIES);
    let rows = entries.iter().skip(older);
    let table = Table {
        id: "entries",
        title: "Changed by hand",
        note: html! { @if older > 0 { "the latest " (MOST_ENTRIES) " of " (count(entries.len() as u64)) } },
        columns: match view.status.changes {
            true => &["Change", "By", "Ends", "Remove*"],
            false => &["Change", "By", "Ends"],
        },
        is_list: false,
        none: "Nothing is changed by hand.",
        rows: rows.map(|entry| entry_row(entry, &view.status)).collect(),
    };
    table.render(&html! { div id="entries-outcome" {} })
}

fn entry_row(entry: &ControlEntry, status: &Status) -> Markup {
    let now_ms = status.now_ms;
    let policy = entry.policy.as_deref();
    let print = entry.fingerprint.as_deref();
    let label = entry.label.as_deref().or(entry.range.as_deref());
    let subject = label.or(print).or(policy).unwrap_or_default();
    let caller_json = print.map(|print| format!("\"fingerprint:{print}\""));
    html! {
        tr data-key=(json(&(entry.kind, policy, print, &entry.range))) data-policy=[policy] data-caller=[caller_json]
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
            @if status.changes {
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
    html! {
        @match entry.kind {
            "ban" => { (badge(Tone::Bad, "ban")) " denies all requests" },
            kind => { (badge(Tone::Quiet, kind)) " " },
        }
        @if let Some(quota) = &entry.quota { (quota) }
        @if let Some(mode) = entry.mode { (mode) }
        @if let Some(list) = entry.list { "on the " (list) " list" @if entry.range.is_none() { " by key" } }
    }
}
