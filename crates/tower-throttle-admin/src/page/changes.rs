//! The buttons of changes, and the dialogs that ask what to change. The script opens a dialog, fills in
//! what it is about, and sends it to the API.

use maud::{Markup, html};

use super::View;
use crate::api::look_up::CallerPolicy;

/// Returns the buttons of the changes that can be made for a caller of a policy.
pub(super) fn buttons(one: &CallerPolicy, view: &View) -> Markup {
    let may_change = view.status.changes && one.fingerprint.is_some();
    let has = |kind: &str| one.entries.iter().any(|entry| entry.kind == kind);
    let is_followed = one.followed == Some(true);
    let is_banned = has("ban") || one.banned_by == Some("policy");
    let all = [
        ("reset", "Reset…", one.error.is_none()),
        ("unban", "Unban…", is_banned),
        ("ban", "Ban…", is_followed && !has("ban")),
        ("override", "Override…", is_followed),
        ("clear-override", "Remove override…", has("override")),
    ];
    html! {
        @for (name, text, is_possible) in all {
            @if may_change && is_possible {
                button.small type="button" data-key=(name) data-change=(name) aria-label={ (text) " " (one.policy) } { (text) }
            }
        }
    }
}

/// Returns all dialogs, for the script.
pub(super) fn dialogs() -> Markup {
    let none = html! {};
    html! {
        (dialog("reset", "Reset the bucket", "Reset", &none,
            "The bucket is full again at once. A ban by the policy ends; one by an operator stays."))
        (dialog("ban", "Ban the caller", "Ban", &html! { (end("1h", true)) (reason(true)) (label()) },
            "All requests of the caller to which the policy applies are denied until the ban ends."))
        (dialog("unban", "End the ban", "Unban", &none,
            "The caller may send requests again. A ban by the policy ends with a full bucket."))
        (dialog("override", "Give the caller another quota", "Override",
            &html! { (field("quota", "Quota", "", true, "As 100 per second, burst 200")) (end("1d", true)) (reason(true)) (label()) },
            "It counts in place of the policy's quota. What is used stays used, but another algorithm starts full."))
        (dialog("clear-override", "Remove the override", "Remove", &none,
            "The policy's quota counts again. What is used stays used, if the algorithm was the same."))
        (dialog("mode", "Change the mode", "Change", &html! { (modes()) (end("", false)) (reason(false)) },
            "For all processes that follow the control document, within two seconds."))
        (dialog("remove", "Remove the change", "Remove", &none,
            "What was changed by hand ends at once in this process, and within two seconds in the others."))
    }
}

fn dialog(name: &str, title: &str, submit: &str, fields: &Markup, about: &str) -> Markup {
    html! {
        template id={ "change-" (name) } {
            dialog aria-labelledby="change-title" {
                form {
                    h2 id="change-title" { (title) }
                    p.subject { bdi data-slot="subject" {} }
                    p { (about) }
                    p.note { "Now: " span data-slot="now" {} }
                    (fields)
                    p.problem role="alert" {}
                    p.actions.end { button.small type="button" data-cancel { "Cancel" } button type="submit" { (submit) } }
                }
            }
        }
    }
}

fn field(name: &str, label: &str, value: &str, required: bool, note: &str) -> Markup {
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
            small id=(note_id) { (note) }
        }
    }
}

fn end(value: &str, required: bool) -> Markup {
    let note = match required {
        true => "From now: 90s, 15m, 1h, 7d, 2w",
        false => "From now, as 15m, 1h, 7d. Empty: until it is removed",
    };
    field("for", "For", value, required, note)
}

fn reason(required: bool) -> Markup {
    let note = "For others: a ticket, a symptom";
    field("reason", "Reason", "", required, note)
}

fn label() -> Markup {
    let note = "For people, as Example Inc.: of the key, only a hash is kept";
    field("label", "Name of the caller", "", false, note)
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
