//! The tiles at the top: what to know at a glance.

use super::{
    html::Html,
    words::{ago, plural, share},
};
use crate::api::{numbers::Metrics, status::Status};

/// The sources of decisions that the store made, at once or before. The others were made without
/// it.
const FAILED: [&str; 2] = ["local", "store_failure"];

/// Adds what a tile answers. `kind`: a class that has a sign, or none.
fn answer(kind: &str, text: &str) -> Html {
    let html = Html::new();
    let html = match kind {
        "good" => html
            .markup("<p class=\"value good\"><span class=\"sign\" aria-hidden=\"true\">✓</span>"),
        "bad" => {
            html.markup("<p class=\"value bad\"><span class=\"sign\" aria-hidden=\"true\">✕</span>")
        }
        "warn" => html
            .markup("<p class=\"value warn\"><span class=\"sign\" aria-hidden=\"true\">!</span>"),
        _ => html.markup("<p class=\"value\">"),
    };
    html.text(text).markup("</p>")
}

fn note(html: Html, text: &str) -> Html {
    html.markup("<p class=\"note\">").text(text).markup("</p>")
}

fn problem(html: Html, text: &str, of: &str) -> Html {
    html.markup("<p class=\"bad\">")
        .text(text)
        .foreign(of)
        .markup("</p>")
}

/// Answers whether Redis decides.
pub(super) fn store(status: &Status, metrics: &[Metrics]) -> Html {
    let decisions = metrics.iter().flat_map(|one| &one.decisions);
    let (mut all, mut failed) = (0, 0);
    for (source, number) in decisions {
        all += number;
        failed += if FAILED.contains(source) { *number } else { 0 };
    }
    let decided = match all {
        0 => "No decision yet".to_owned(),
        all => format!("{} of all decisions", share(all - failed, all)),
    };
    let down: Vec<_> = status.stores.iter().filter(|store| !store.up).collect();
    if !down.is_empty() {
        let html = match down.len() == status.stores.len() {
            true => answer("bad", "No: it fails"),
            false => answer("warn", "Partly: calls fail"),
        };
        let html = note(html, &decided);
        let html = html.each(down, |html, store| problem(html, "Down: ", &store.name));
        return note(html, "Each policy goes by its setting for failures");
    }
    if status
        .stores
        .iter()
        .any(|store| store.breakers_open.is_some())
    {
        return note(answer("good", "Yes"), &decided);
    }
    note(
        answer("", "No Redis: in memory"),
        "Each process counts for itself",
    )
}

pub(super) fn traffic(metrics: &[Metrics]) -> Html {
    let requests = metrics.iter().flat_map(|one| &one.requests);
    let (mut all, mut denied) = (0, 0);
    for (result, number) in requests {
        let is_denied = !["allowed", "not_limited", "exempt", "cancelled"].contains(result);
        all += number;
        denied += if is_denied { *number } else { 0 };
    }
    let html = answer("", &plural(all, "request", "requests"));
    note(
        html,
        &format!("{denied} denied, since this process started"),
    )
}

pub(super) fn file(status: &Status) -> Html {
    let now_ms = status.now_ms;
    let Some(config) = &status.config else {
        return note(answer("", "In code"), "No file of limits is followed");
    };
    if let Some(rejected) = &config.rejected {
        let since = ago(rejected.since_ms, now_ms);
        let html = answer("bad", "A new file is rejected");
        let html = note(
            html,
            &format!("Version {} applies on. Rejected {since}", config.version),
        );
        let problems = rejected.problems.iter().take(3);
        return html.each(problems, |html, text| problem(html, "", text));
    }
    let applied = ago(config.applied_ms, now_ms);
    let html = answer("good", &format!("Version {}", config.version));
    let html = note(html, &format!("From the file, applied {applied}"));
    html.maybe(config.hash.as_ref(), |html, hash| {
        html.markup("<p class=\"note\">Hash ")
            .foreign(hash)
            .markup("</p>")
    })
}

pub(super) fn document(status: &Status) -> Html {
    let Some(control) = &status.control else {
        return note(
            answer("", "Not in use"),
            "Bans, overrides and modes need one",
        );
    };
    let html = match &control.problem {
        Some(text) => problem(answer("warn", "Not up to date"), "", text),
        None => answer("", &plural(control.entries as u64, "entry", "entries")),
    };
    let html = match control.since_ms {
        Some(since_ms) => {
            let applied = ago(since_ms, status.now_ms);
            note(html, &format!("Changes applied {applied}"))
        }
        None => note(html, "Nothing was changed yet"),
    };
    let unknown = control.unknown_policies.first();
    let html = html.maybe(unknown, |html, name| {
        html.markup("<p class=\"note\">No such policy here: ")
            .foreign(name)
            .markup("</p>")
    });
    html.maybe(control.not_followed.first(), |html, name| {
        html.markup("<p class=\"warn\">Not followed under ")
            .foreign(name)
            .markup("</p>")
    })
}
