//! The tables of policies, sources and stores.

use maud::{Markup, html};
use tower_throttle::{Source, control::Mode, key::KeySource, metrics::StoreMetrics};

use super::{
    RECENTLY, View,
    card::{Table, card},
    entries::author,
    text::{Tone, badge, foreign, json, remarks, signed, until},
    words::{count, plural, share},
};
use crate::api::{policies::Policy, recent::outcomes_of};

pub(super) fn policies(view: &View) -> Markup {
    let policies = view.policies.iter();
    let table = Table {
        id: "policies",
        title: "Policies",
        note: html! { "checks since this process started" },
        columns: &[
            "Policy",
            "Counts by",
            "Quota",
            "Mode",
            "#Allowed",
            "#Denied",
            "#Would deny",
            "#Denied, 5 min*",
        ],
        none: "No layer or limiter is shown.",
        rows: policies.map(|policy| policy_row(policy, view)).collect(),
        ..Table::default()
    };
    table.render(&html! { div id="policies-outcome" {} })
}

fn policy_row(policy: &Policy, view: &View) -> Markup {
    let (state, limiter) = (&policy.state, policy.of.name());
    let (name, mode) = (&state.name, state.mode.name());
    let snapshot = view.snapshots.get(policy.index);
    let counts = snapshot.and_then(|snapshot| snapshot.policy(name));
    let counts = counts.map_or([0; 3], outcomes_of);
    let labels = ["Allowed", "Denied", "Would deny"];
    let tone = match state.mode {
        Mode::Shadow => Tone::Warn,
        _ => Tone::Quiet,
    };
    let shown_mode = match state.enforced_percent {
        percent @ 1..=99 => format!("enforce for {percent} %"),
        _ => mode.to_owned(),
    };
    let on_failure = state.on_store_failure.to_string();
    html! {
        tr data-key={ (policy.index) "/" (name) } data-series=(json(&(limiter, name))) data-policy=(name)
            data-subject=(name) data-mode=(mode) data-now={ "mode " (mode) }
            data-by-hand[policy.by_hand.is_some()] data-outcome="policies-outcome" {
            th scope="row" {
                (foreign(name))
                @if view.has_several_limiters() { small { (foreign(limiter)) } }
            }
            td data-label="Counts by" {
                @match &state.counts_by {
                    KeySource::Everyone => "one bucket for all callers",
                    source => (source.to_string().replace('`', "")),
                }
            }
            td data-label="Quota" {
                @match state.quota { Some(quota) => (quota), None => "chosen for each request" }
                (remarks(&[
                    (on_failure != "local").then(|| format!("if the store fails: {on_failure}")),
                    (policy.followed == Some(false)).then(|| "does not follow the control document".to_owned()),
                    more(Some(state.overrides as u64), "override", "overrides"),
                    more(Some(state.bans as u64), "ban", "bans"),
                ]))
            }
            td.mode {
                (badge(tone, &shown_mode))
                @if view.shared.changes && policy.followed == Some(true) {
                    button.small.scripted type="button" data-change="mode"
                        aria-label={ "Change the mode of " (name) } { "Change…" }
                }
                @if let Some(entry) = &policy.by_hand {
                    small {
                        "by " (author(entry))
                        @if let Some(end) = entry.until { ", ends " (until(end)) }
                    }
                }
            }
            @for (number, label) in counts.into_iter().zip(labels) {
                td.number data-label=(label) { (count(number)) }
            }
            td.number.scripted data-label="Denied, 5 min" data-own {}
        }
    }
}

/// The sources of decisions.
pub(super) const SOURCES: [(&str, &str, Tone); 6] = [
    ("store", "Redis or memory", Tone::Good),
    ("cache", "Cached denials", Tone::Good),
    ("lease", "Leased units", Tone::Good),
    ("list", "Lists and bans", Tone::Quiet),
    ("local", "Local: store failed", Tone::Warn),
    ("store_failure", "None: store failed", Tone::Bad),
];

pub(super) fn source_name(source: Source) -> &'static str {
    let mut sources = SOURCES.iter();
    let found = sources.find(|(name, ..)| *name == source.name());
    found.map_or(source.name(), |(_, name, _)| name)
}

/// Shows who decided in the last five minutes, or since the process started if there was no look.
pub(super) fn sources(view: &View) -> Markup {
    let recent = view.totals(RECENTLY);
    let of = |source| recent.count(source);
    let whole: u64 = SOURCES.iter().map(|(source, ..)| of(source)).sum();
    let rows = html! {
        table.bars id="sources" {
            thead.hidden { tr { @for name in ["Source", "Bar", "Share", "Decisions"] { th scope="col" { (name) } } } }
            tbody id="sources-part" data-part {
                @for (source, name, tone) in SOURCES {
                    tr.nothing[of(source) == 0] {
                        th scope="row" { (name) }
                        td { (bar(tone, of(source), whole)) }
                        td.number { (share(of(source), whole)) }
                        td.number { (count(of(source))) }
                    }
                }
            }
        }
    };
    let note = html! { (recent.period("last 5 minutes")) };
    card("sources", "Who decided", &note, &rows)
}

/// Draws a share. The content security policy allows no `style`, so it is a picture.
pub(super) fn bar(tone: Tone, part: u64, whole: u64) -> Markup {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    html! {
        svg class={ "trough " (tone.class()) } viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" {
            rect width=(format!("{:.1}", percent.min(100.0))) height="1" {}
        }
    }
}

pub(super) fn stores(view: &View) -> Markup {
    let table = Table {
        id: "stores",
        title: "Stores",
        columns: &["Store", "State", "#In flight", "#Failures", "#Buckets"],
        none: "No store is shown.",
        rows: view.stores.iter().map(store_row).collect(),
        ..Table::default()
    };
    table.render(&html! {
        div.scripted id="calls" hidden {
            div.heading { h3 { "Duration of calls" } p.note id="calls-note" {} }
            div.chart.low id="calls-chart" {}
        }
    })
}

fn store_row(store: &StoreMetrics) -> Markup {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), count);
    let (tone, state) = match store.is_up {
        true => (Tone::Good, "up"),
        false => (Tone::Bad, "down"),
    };
    html! {
        tr data-key=(store.name) {
            th scope="row" {
                (foreign(&store.name)) (remarks(&[more(store.cached_denials, "cached denial", "cached denials")]))
            }
            td {
                span class=(tone.class()) { (signed(tone, state)) }
                (remarks(&[more(store.breakers_open, "open breaker", "open breakers")]))
            }
            td.number { (number(store.in_flight)) }
            td.number { (count(store.failures.total())) }
            td.number { (number(store.memory_buckets)) (remarks(&[more(Some(store.local_buckets), "local", "local")])) }
        }
    }
}

/// Describes a number that is neither unknown nor zero.
fn more(number: Option<u64>, one: &str, many: &str) -> Option<String> {
    let number = number.filter(|number| *number > 0)?;
    Some(plural(number, one, many))
}
