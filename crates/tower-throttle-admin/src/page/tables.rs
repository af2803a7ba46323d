//! The tables of policies, sources and stores.

use super::{
    html::Html,
    words::{ahead, plural, share},
};
use crate::api::{
    numbers::Metrics,
    policies::{ControlEntry, Policy},
    stores::StoreStatus,
};

/// Returns the only row of a table that is empty.
pub(super) fn none(columns: u64, why: &'static str) -> Html {
    let html = Html::new()
        .markup("<tr class=\"none\"><td colspan=\"")
        .number(columns);
    html.markup("\">").markup(why).markup("</td></tr>")
}

fn number(html: Html, number: u64) -> Html {
    html.markup("<td class=\"number\">")
        .number(number)
        .markup("</td>")
}

pub(super) fn policy_options(policies: &[Policy]) -> Html {
    let mut names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
    names.sort_unstable();
    names.dedup();
    Html::new().each(names, |html, name| {
        html.markup("<option value=\"")
            .text(name)
            .markup("\">")
            .text(name)
            .markup("</option>")
    })
}

pub(super) fn policies(policies: &[Policy], metrics: &[Metrics], now_ms: u64) -> Html {
    if policies.is_empty() {
        return none(7, "No layer or limiter is shown.");
    }
    Html::new().each(policies, |html, policy| {
        let (allowed, denied, would_deny) = checks(policy, metrics);
        let html = html.markup("<tr><th scope=\"row\">").foreign(&policy.name);
        let html = html
            .markup("<small>")
            .foreign(&policy.limiter)
            .markup("</small></th><td>");
        let html = match &policy.quota {
            Some(quota) => html.text(quota),
            None => html.markup("chosen for each request"),
        };
        let html = html.markup("<small>").text(&remarks(policy));
        let html = mode(html.markup("</small></td><td>"), policy, now_ms);
        let html = html.markup("</td>");
        let html = [allowed, denied, would_deny].into_iter().fold(html, number);
        html.markup("<td class=\"number scripted\"></td></tr>")
    })
}

/// Returns what is special about a policy.
fn remarks(policy: &Policy) -> String {
    let fails = format!("if the store fails: {}", policy.on_store_failure);
    let number = |number: usize, one, many| plural(number as u64, one, many);
    let counts_by = match policy.shared {
        true => "one bucket for all callers".to_owned(),
        false => format!("counts by {}", policy.counts_by),
    };
    let remarks = [
        (true, counts_by),
        (policy.on_store_failure != "local", fails),
        (
            policy.followed == Some(false),
            "does not follow the control document".to_owned(),
        ),
        (
            policy.overrides > 0,
            number(policy.overrides, "override", "overrides"),
        ),
        (policy.bans > 0, number(policy.bans, "ban", "bans")),
    ];
    let remarks = remarks.into_iter().filter(|(is_so, _)| *is_so);
    let remarks: Vec<String> = remarks.map(|(_, remark)| remark).collect();
    remarks.join(" · ")
}

fn mode(html: Html, policy: &Policy, now_ms: u64) -> Html {
    let html = match policy.mode {
        "shadow" => html.markup("<span class=\"badge warn\">"),
        _ => html.markup("<span class=\"badge\">"),
    };
    let html = match policy.enforced_percent {
        percent @ 1..=99 => html.text(&format!("enforce for {percent} %")),
        _ => html.text(policy.mode),
    };
    html.markup("</span>")
        .maybe(policy.by_hand.as_ref(), |html, entry| {
            let html = html.markup("<small>by ");
            let html = author(html, entry);
            let html = html.maybe(entry.until_ms, |html, until_ms| {
                html.markup(", ends ").text(&ahead(until_ms, now_ms))
            });
            html.markup("</small>")
        })
}

pub(super) fn author(html: Html, entry: &ControlEntry) -> Html {
    match &entry.author {
        Some(author) => html.foreign(author),
        None => html.markup("an operator"),
    }
}

/// Returns how many checks of a policy were allowed, denied, and would have been denied.
fn checks(policy: &Policy, metrics: &[Metrics]) -> (u64, u64, u64) {
    let of_limiter = metrics.get(policy.index).into_iter();
    let mut policies = of_limiter.flat_map(|one| &one.policies);
    let found = policies.find(|found| found.name == policy.name);
    let sum = |results: &[&str]| {
        let checks = found.into_iter().flat_map(|found| &found.checks);
        let counted = checks.filter(|(result, _)| results.contains(result));
        counted.map(|(_, number)| number).sum()
    };
    (
        sum(&["allowed", "near"]),
        sum(&["denied", "impossible", "key_missing"]),
        sum(&["shadow_denied"]),
    )
}

/// The sources of decisions, as the script names them.
pub(super) const SOURCES: [(&str, &str); 6] = [
    ("store", "Redis or memory"),
    ("cache", "Cached denials"),
    ("lease", "Leased units"),
    ("list", "Lists and bans"),
    ("local", "Local: store failed"),
    ("store_failure", "None: store failed"),
];

pub(super) fn source_name(source: &'static str) -> &'static str {
    let mut sources = SOURCES.iter();
    let found = sources.find(|(name, _)| *name == source);
    found.map_or(source, |(_, name)| name)
}

pub(super) fn sources(metrics: &[Metrics]) -> Html {
    let of = |source: &str| {
        let all = metrics.iter().flat_map(|one| &one.decisions);
        let own = all.filter(|(name, _)| *name == source);
        own.map(|(_, number)| number).sum::<u64>()
    };
    let whole: u64 = SOURCES.iter().map(|(source, _)| of(source)).sum();
    Html::new().each(SOURCES, |html, (source, name)| {
        let html = html.markup("<tr><th scope=\"row\">").markup(name);
        let html = html.markup("</th><td></td><td class=\"number\">");
        let html = html.text(&share(of(source), whole)).markup("</td>");
        number(html, of(source)).markup("</tr>")
    })
}

pub(super) fn stores(stores: &[StoreStatus]) -> Html {
    if stores.is_empty() {
        return none(5, "No store is shown.");
    }
    Html::new().each(stores, |html, store| {
        let html = html.markup("<tr><th scope=\"row\">").foreign(&store.name);
        let cached = store.cached_denials.filter(|cached| *cached > 0);
        let html = html.maybe(cached, |html, cached| {
            let denials = plural(cached, "cached denial", "cached denials");
            html.markup("<small>").text(&denials).markup("</small>")
        });
        let html = html.markup(match store.up {
            true => "</th><td><span class=\"good\"><span class=\"sign\" aria-hidden=\"true\">✓</span>up</span>",
            false => "</th><td><span class=\"bad\"><span class=\"sign\" aria-hidden=\"true\">✕</span>down</span>",
        });
        let open = store.breakers_open.filter(|open| *open > 0);
        let html = html.maybe(open, |html, open| {
            let breakers = plural(open, "open breaker", "open breakers");
            html.markup("<small>").text(&breakers).markup("</small>")
        });
        let html = html.markup("</td>");
        let html = match store.in_flight {
            Some(in_flight) => number(html, in_flight),
            None => html.markup("<td class=\"number\">-</td>"),
        };
        let failures = store.failures.iter().map(|(_, number)| number).sum();
        let html = number(html, failures).markup("<td class=\"number\">");
        let html = match store.buckets {
            Some(buckets) => html.number(buckets),
            None => html.markup("-"),
        };
        let local = Some(store.local_buckets).filter(|local| *local > 0);
        let html = html.maybe(local, |html, local| {
            html.markup("<small>").number(local).markup(" local</small>")
        });
        html.markup("</td></tr>")
    })
}
