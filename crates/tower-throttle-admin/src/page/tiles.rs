//! The tiles at the top: what to know at a glance.

use maud::{Markup, html};

use super::{
    text::{Tone, foreign, signed, since},
    words::{count, plural, share},
};
use crate::api::{recent::Totals, status::Status};

pub(super) fn tiles(status: &Status, recent: &Totals) -> Markup {
    html! {
        section.tiles id="tiles" data-part aria-label="State" {
            (tile("tile-store", "Is Redis deciding?", &store(status, recent)))
            (tile("tile-traffic", "Requests", &traffic(recent)))
            (tile("tile-file", "Limits", &file(status)))
            (tile("tile-document", "Control document", &document(status)))
        }
    }
}

fn tile(id: &str, title: &str, answer: &Markup) -> Markup {
    html! { div.tile id=(id) { h2 { (title) } (answer) } }
}

fn value(tone: Tone, text: &str) -> Markup {
    html! { p class={ "value " (tone.class()) } { (signed(tone, text)) } }
}

fn note(text: &str) -> Markup {
    html! { p.note { (text) } }
}

/// Says which share Redis decided lately, and why it did not decide the rest.
pub(super) fn store(status: &Status, recent: &Totals) -> Markup {
    if !status
        .stores
        .iter()
        .any(|store| store.breakers_open.is_some())
    {
        let down = status.stores.iter().find(|store| !store.up);
        return match down {
            Some(store) => html! {
                (value(Tone::Bad, "No: the store fails"))
                p.bad { "Down: " (foreign(&store.name)) }
            },
            None => html! {
                (value(Tone::Quiet, "No Redis: in memory"))
                (note("Each process counts for itself"))
            },
        };
    }
    let (all, failed) = (recent.decisions(), recent.undecided());
    let decided = share(all - failed, all);
    let why = format!(
        "{} {}",
        share(failed, all),
        recent.failure().unwrap_or("failed")
    );
    let mut down = status.stores.iter().filter(|store| !store.up).peekable();
    let is_down = down.peek().is_some();
    let (tone, text) = match (all, failed) {
        (0, _) if is_down => (Tone::Bad, "No: it did not answer".to_owned()),
        (0, _) => (Tone::Good, "Yes".to_owned()),
        (_, 0) if is_down => (Tone::Warn, "Mostly: it answers again".to_owned()),
        (_, 0) => (Tone::Good, "Yes".to_owned()),
        _ if failed == all => (Tone::Bad, format!("No ({why})")),
        _ if failed > all / 2 => (Tone::Bad, format!("No ({decided}, {why})")),
        _ => (Tone::Warn, format!("Mostly ({decided}, {why})")),
    };
    html! {
        (value(tone, &text))
        @match all {
            0 => p.note { "No decision " (recent.period("in the last 10 s")) },
            _ => p.note { (decided) " of the decisions " (recent.period("in the last 10 s")) },
        }
        @for store in down { p.bad { "Down: " (foreign(&store.name)) } }
        @if tone != Tone::Good { (note("Each policy goes by its setting for failures")) }
    }
}

fn traffic(recent: &Totals) -> Markup {
    let number = |number: u64| match recent.seconds > 0.0 {
        true => format!("{:.1}", number as f64 / recent.seconds),
        false => count(number),
    };
    let unit = if recent.seconds > 0.0 {
        "per second"
    } else {
        "requests"
    };
    let all = number(recent.allowed + recent.denied);
    let (allowed, denied) = (number(recent.allowed), number(recent.denied));
    html! {
        (value(Tone::Quiet, &format!("{all} {unit}")))
        p.note {
            (allowed) " allowed, " (denied) " denied"
            @if recent.shadow_denied > 0 { ", " (number(recent.shadow_denied)) " would be denied" }
            ", " (recent.period("in the last 10 s"))
        }
    }
}

fn file(status: &Status) -> Markup {
    let now_ms = status.now_ms;
    let Some(config) = &status.config else {
        return html! {
            (value(Tone::Quiet, "In code"))
            (note("No file of limits is followed"))
        };
    };
    let version = count(config.version);
    html! {
        @if let Some(rejected) = &config.rejected {
            (value(Tone::Bad, "A new file is rejected"))
            p.note { "Version " (version) " applies on. Rejected " (since(rejected.since_ms, now_ms)) }
            @for problem in rejected.problems.iter().take(3) { p.bad { (foreign(problem)) } }
        } @else {
            (value(Tone::Good, &format!("Version {version}")))
            p.note { "From the file, applied " (since(config.applied_ms, now_ms)) }
            @if let Some(hash) = &config.hash { p.note { "Hash " (foreign(hash)) } }
        }
    }
}

fn document(status: &Status) -> Markup {
    let Some(control) = &status.control else {
        return html! {
            (value(Tone::Quiet, "Not in use"))
            (note("Bans, overrides and modes need one"))
        };
    };
    html! {
        @if let Some(problem) = &control.problem {
            (value(Tone::Warn, "Not up to date"))
            p.bad { (foreign(problem)) }
        } @else {
            (value(Tone::Quiet, &plural(control.entries as u64, "entry", "entries")))
        }
        @if let Some(since_ms) = control.since_ms {
            p.note { "Changes applied " (since(since_ms, status.now_ms)) }
        } @else {
            (note("Nothing was changed yet"))
        }
        @if let Some(name) = control.unknown_policies.first() {
            p.note { "No such policy here: " (foreign(name)) }
        }
        @if let Some(name) = control.not_followed.first() {
            p.warn { "Not followed under " (foreign(name)) }
        }
    }
}
