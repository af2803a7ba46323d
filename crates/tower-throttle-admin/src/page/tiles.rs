//! The tiles at the top: what to know at a glance.

use maud::{Markup, html};
use tower_throttle::metrics::StoreMetrics;

use super::{
    LATELY, View,
    text::{Tone, foreign, signed, since},
    words::{count, plural, share},
};
use crate::api::{
    recent::{OUTCOMES, Totals},
    status::not_followed,
};

pub(super) fn tiles(view: &View) -> Markup {
    let (stores, recent) = (&view.stores, view.totals(LATELY));
    let tiles = [
        ("tile-store", "Is Redis deciding?", store(stores, &recent)),
        ("tile-traffic", "Requests", traffic(&recent)),
        ("tile-file", "Limits", file(view)),
        ("tile-document", "Control document", document(view)),
    ];
    html! {
        section.tiles id="tiles" data-part aria-label="State" {
            @for (id, title, answer) in tiles { div.tile id=(id) { h2 { (title) } (answer) } }
        }
    }
}

fn value(tone: Tone, text: &str) -> Markup {
    html! { p class={ "value " (tone.class()) } { (signed(tone, text)) } }
}

/// Says which share Redis decided lately, and why it did not decide the rest.
pub(super) fn store(stores: &[StoreMetrics], recent: &Totals) -> Markup {
    let mut down = stores.iter().filter(|store| !store.is_up).peekable();
    let is_down = down.peek().is_some();
    let is_redis = stores.iter().any(|store| store.breakers_open.is_some());
    let (all, failed) = (recent.decisions(), recent.undecided());
    let decided = share(all - failed, all);
    let kind = recent.failure().map(|kind| format!(": {kind}"));
    let why = format!("{} failed{}", share(failed, all), kind.unwrap_or_default());
    let (tone, text) = match (all, failed) {
        _ if !is_redis && is_down => (Tone::Bad, "No: the store fails".to_owned()),
        _ if !is_redis => (Tone::Quiet, "No Redis: in memory".to_owned()),
        (0, _) if is_down => (Tone::Bad, "No: it did not answer".to_owned()),
        (_, 0) if is_down => (Tone::Warn, "Mostly: it answers again".to_owned()),
        (_, 0) => (Tone::Good, "Yes".to_owned()),
        _ if failed == all => (Tone::Bad, format!("No ({why})")),
        _ if failed > all / 2 => (Tone::Bad, format!("No ({decided}, {why})")),
        _ => (Tone::Warn, format!("Mostly ({decided}, {why})")),
    };
    html! {
        (value(tone, &text))
        @if is_redis {
            p.note {
                @match all { 0 => "No decision ", _ => { (decided) " of the decisions " } }
                (recent.period("in the last 10 s"))
            }
        }
        @for store in down { p.bad { "Down: " (foreign(&store.name)) } }
        @if tone == Tone::Quiet { p.note { "Each process counts for itself" } }
        @if is_redis && tone != Tone::Good { p.note { "Each policy goes by its setting for failures" } }
    }
}

fn traffic(recent: &Totals) -> Markup {
    let is_rate = recent.seconds > 0.0;
    let unit = if is_rate { "per second" } else { "requests" };
    let number = |number: u64| match is_rate {
        true => format!("{:.1}", number as f64 / recent.seconds),
        false => count(number),
    };
    let [allowed, denied, shadow] = OUTCOMES.map(|outcome| recent.count(outcome));
    let all = number(allowed + denied);
    html! {
        (value(Tone::Quiet, &format!("{all} {unit}")))
        p.note {
            (number(allowed)) " allowed, " (number(denied)) " denied"
            @if shadow > 0 { ", " (number(shadow)) " would be denied" }
            ", " (recent.period("in the last 10 s"))
        }
    }
}

fn file(view: &View) -> Markup {
    html! {
        @match view.shared.targets.file_status() {
            None => {
                (value(Tone::Quiet, "In code"))
                p.note { "No file of limits is followed" }
            },
            Some(file) => {
                @let version = count(file.version);
                @if let Some(rejected) = file.rejected_since {
                    (value(Tone::Bad, "A new file is rejected"))
                    p.note { "Version " (version) " applies on. Rejected " (since(rejected)) }
                    @for problem in file.problems.iter().take(3) { p.bad { (foreign(problem)) } }
                } @else {
                    (value(Tone::Good, &format!("Version {version}")))
                    p.note { "From the file, applied " (since(file.applied_at)) }
                    @if let Some(hash) = &file.hash { p.note { "Hash " (foreign(hash)) } }
                }
            },
        }
    }
}

fn document(view: &View) -> Markup {
    let Some(control) = &view.shared.control else {
        return html! {
            (value(Tone::Quiet, "Not in use"))
            p.note { "Bans, overrides and modes need one" }
        };
    };
    let status = control.status();
    let not_followed = not_followed(control, &view.inspected);
    html! {
        @if let Some(problem) = &status.problem {
            (value(Tone::Warn, "Not up to date"))
            p.bad { (foreign(problem)) }
        } @else {
            (value(Tone::Quiet, &plural(status.entries as u64, "entry", "entries")))
        }
        @match status.applied_at {
            Some(at) => p.note { "Changes applied " (since(at)) },
            None => p.note { "Nothing was changed yet" },
        }
        @if let Some(name) = status.unknown_policies.first() { p.note { "No such policy here: " (foreign(name)) } }
        @if let Some(name) = not_followed.first() { p.warn { "Not followed under " (foreign(name)) } }
    }
}
