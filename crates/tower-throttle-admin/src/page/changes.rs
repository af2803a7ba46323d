//! The buttons of changes, and the dialogs that ask what to change. The script opens a dialog, fills in
//! what it is about, and sends it to the API.

use maud::{Markup, html};

use super::View;
use crate::api::{look_up::CallerPolicy, policies::subject};

/// Returns the buttons of the changes that can be made for a caller of a policy.
pub(super) fn buttons(one: &CallerPolicy, view: &View) -> Markup {
    let (state, is_followed) = (&one.state, one.followed == Some(true));
    let may_change = view.shared.changes && state.fingerprint.is_some();
    let has = |kind| state.entries.iter().any(|entry| subject(entry).0 == kind);
    let is_banned = has("ban") || state.banned_by_policy_until().is_some();
    let all = [
        ("reset", "Reset…", state.bucket.is_ok()),
        ("unban", "Unban…", is_banned),
        ("ban", "Ban…", is_followed && !has("ban")),
        ("override", "Override…", is_followed),
        ("clear-override", "Remove override…", has("override")),
    ];
    html! {
        @for (name, text, is_possible) in all {
            @if may_change && is_possible {
                button.small type="button" data-key=(name) data-change=(name)
                    aria-label={ (text) " " (state.policy) } { (text) }
            }
        }
    }
}

/// Returns all dialogs, for the script. Each field has what it holds at first. Those with `?` may be
/// left empty.
pub(super) fn dialogs() -> Markup {
    let ban = [("for", "1h"), ("reason", ""), ("label?", "")];
    let given = [("quota", ""), ("for", "1d"), ("reason", ""), ("label?", "")];
    let mode = [("mode", ""), ("for?", ""), ("reason?", "")];
    html! {
        (dialog("reset", "Reset the bucket", "Reset", &[],
            "The bucket is full again at once. A ban by the policy ends; one by an operator stays."))
        (dialog("ban", "Ban the caller", "Ban", &ban,
            "All requests of the caller to which the policy applies are denied until the ban ends."))
        (dialog("unban", "End the ban", "Unban", &[],
            "The caller may send requests again. A ban by the policy ends with a full bucket."))
        (dialog("override", "Give the caller another quota", "Override", &given,
            "It counts in place of the policy's quota. What is used stays used, but another algorithm starts full."))
        (dialog("clear-override", "Remove the override", "Remove", &[],
            "The policy's quota counts again. What is used stays used, if the algorithm was the same."))
        (dialog("mode", "Change the mode", "Change", &mode,
            "For all processes that follow the control document, within two seconds."))
        (dialog("remove", "Remove the change", "Remove", &[],
            "What was changed by hand ends at once in this process, and within two seconds in the others."))
    }
}

fn dialog(name: &str, title: &str, submit: &str, fields: &[(&str, &str)], about: &str) -> Markup {
    html! {
        template id={ "change-" (name) } {
            dialog aria-labelledby="change-title" {
                form {
                    h2 id="change-title" { (title) }
                    p.subject { bdi data-slot="subject" {} }
                    p { (about) }
                    p.note { "Now: " span data-slot="now" {} }
                    @for (name, value) in fields {
                        @if *name == "mode" { (modes()) } @else { (field(name, value)) }
                    }
                    p.problem role="alert" {}
                    p.actions.end { button.small type="button" data-cancel { "Cancel" } button type="submit" { (submit) } }
                }
            }
        }
    }
}

fn field(name: &str, value: &str) -> Markup {
    let (name, required) = (name.trim_end_matches('?'), !name.ends_with('?'));
    let (label, note) = match name {
        "quota" => ("Quota", "As 100 per second, burst 200"),
        "for" => ("For", "From now: 90s, 15m, 1h, 7d, 2w"),
        "reason" => ("Reason", "For others: a ticket, a symptom"),
        _ => (
            "Name of the caller",
            "For people, as Example Inc.: of the key, only a hash is kept",
        ),
    };
    let id = format!("change-{name}-field");
    let note_id = format!("change-{name}-note");
    html! {
        div.field {
            label for=(id) { (label) @if !required { small { " optional" } } }
            input id=(id) name=(name) value=(value) required[required] autocomplete="off" maxlength="256" aria-describedby=(note_id);
            @if name == "for" {
                p.actions {
                    @for choice in ["15m", "1h", "1d", "7d"] {
                        button.small type="button" data-choice=(choice) { (choice) }
                    }
                }
            }
            small id=(note_id) { (note) @if name == "for" && !required { ". Empty: until it is removed" } }
        }
    }
}

fn modes() -> Markup {
    let modes = [
        ("enforce", "Enforce", "denies what has no room"),
        ("shadow", "Shadow", "counts, and denies nothing"),
        ("off", "Off", "is not asked"),
        ("default", "As configured", "undoes a change by hand"),
    ];
    html! {
        fieldset {
            legend { "Mode" }
            @for (value, name, about) in modes {
                label.option {
                    input type="radio" name="mode" value=(value) required;
                    span { b { (name) } " " small { (about) } }
                }
            }
        }
    }
}
