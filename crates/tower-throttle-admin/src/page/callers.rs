//! The tables of callers: recent denials, those denied most, and what was changed by hand.

use super::{
    html::Html,
    tables::{author, none},
    words::{ago, ahead, count, duration},
};
use crate::api::{
    numbers::{Denial, Top},
    policies::ControlEntry,
};

pub(super) fn denials(denials: &[Denial], now_ms: u64) -> Html {
    if denials.is_empty() {
        return none(4, "No denial yet.");
    }
    Html::new().each(denials, |html, denial| {
        let mut known: Vec<_> = denial
            .callers
            .iter()
            .flat_map(|one| &one.fingerprint)
            .collect();
        known.dedup();
        let html = html.markup("<tr><th scope=\"row\">");
        let html = match known.is_empty() {
            true => html.markup("unknown"),
            false => html.each(known, |html, one| {
                html.markup("<code>").text(one).markup("</code> ")
            }),
        };
        let html = html
            .markup("</th><td><span class=\"bad\">")
            .text(reason(denial.reason));
        let html = html.markup("</span><small>");
        let html = html.each(denial.callers.iter().enumerate(), |html, (index, one)| {
            html.markup(if index > 0 { ", " } else { "" })
                .foreign(&one.policy)
        });
        let html = html.markup("</small></td><td>");
        let html = html.maybe(denial.method, |html, method| html.text(method).markup(" "));
        let html = html.maybe(denial.route.as_ref(), |html, route| html.foreign(route));
        let html = html.markup("<small>");
        let html = match denial.retry_after_ms {
            Some(wait_ms) => html.markup("wait ").text(&duration(wait_ms)),
            None => html.markup("waiting does not help"),
        };
        let html = html.markup("</small></td><td class=\"number\">");
        html.text(&ago(denial.at_ms, now_ms)).markup("</td></tr>")
    })
}

/// Returns why a request was denied, in words.
pub(super) fn reason(reason: &'static str) -> &'static str {
    match reason {
        "quota_exceeded" => "no room",
        "cost_impossible" => "can never fit",
        "key_missing" => "no key",
        "listed" => "on the deny list",
        "store_failed" => "store failed",
        other => other,
    }
}

/// What a shadow policy does with a caller.
pub(super) const SHADOW: &str = "would be denied";

pub(super) fn top(top: &[Top], now_ms: u64) -> Html {
    if top.is_empty() {
        return none(4, "No caller has been denied.");
    }
    Html::new().each(top, |html, one| {
        let html = html.markup("<tr><th scope=\"row\">");
        let html = html.maybe(one.name.as_ref(), |html, name| {
            html.foreign(name).markup(" ")
        });
        let html = html
            .markup("<code>")
            .text(&one.fingerprint)
            .markup("</code></th><td>");
        let html = html.foreign(&one.policy);
        let html = html.maybe(one.shadow.then_some(SHADOW), |html, note| {
            html.markup("<small>").text(note).markup("</small>")
        });
        let html = html.markup(" <span class=\"note\">");
        let html = html
            .foreign(&one.limiter)
            .markup("</span></td><td class=\"number\">");
        let html = html.number(one.at_least());
        let html = html.maybe((one.error > 0).then_some(one.count), |html, count| {
            html.markup("<small>up to ")
                .number(count)
                .markup("</small>")
        });
        let html = html.markup("</td><td class=\"number\">");
        html.text(&ago(one.last_seen_ms, now_ms))
            .markup("</td></tr>")
    })
}

/// How many entries are shown. A document may have 10,000.
pub(super) const MOST_ENTRIES: usize = 500;

/// Says that there are more entries than are shown.
pub(super) fn entries_note(entries: usize) -> String {
    match entries > MOST_ENTRIES {
        true => format!("the latest {MOST_ENTRIES} of {}", count(entries as u64)),
        false => String::new(),
    }
}

pub(super) fn entries(entries: &[ControlEntry], now_ms: u64) -> Html {
    if entries.is_empty() {
        return none(4, "Nothing is changed by hand.");
    }
    let older = entries.len().saturating_sub(MOST_ENTRIES);
    Html::new().each(entries.iter().skip(older), |html, entry| {
        let html = html.markup("<tr><th scope=\"row\">");
        let html = what(html, entry).markup("<small>");
        let html = html.maybe(
            entry.label.as_ref().or(entry.range.as_ref()),
            |html, name| html.foreign(name).markup(" "),
        );
        let html = html.maybe(entry.fingerprint.as_ref(), |html, one| {
            html.markup("<code>").text(one).markup("</code> ")
        });
        let html = html.maybe(entry.policy.as_ref(), |html, policy| {
            html.markup("policy ").foreign(policy)
        });
        let html = author(html.markup("</small></th><td>"), entry);
        let html = html.markup("<small>").text(&ago(entry.created_ms, now_ms));
        let html = html.markup("</small>");
        let html = html.maybe(entry.reason.as_ref(), |html, reason| {
            html.markup("<small>").foreign(reason).markup("</small>")
        });
        let html = html.markup("</td><td>");
        let html = match entry.until_ms {
            Some(until_ms) => html.text(&ahead(until_ms, now_ms)),
            None => html.markup("when removed"),
        };
        html.markup("</td></tr>")
    })
}

/// Adds what an entry changes.
pub(super) fn what(html: Html, entry: &ControlEntry) -> Html {
    let html = match entry.kind {
        "ban" => html.markup("<span class=\"badge bad\">ban</span> "),
        kind => html
            .markup("<span class=\"badge\">")
            .text(kind)
            .markup("</span> "),
    };
    if entry.kind == "ban" {
        return html.markup("denies all requests");
    }
    let html = html.maybe(entry.quota.as_ref(), |html, quota| html.text(quota));
    let html = html.maybe(entry.mode, |html, mode| html.text(mode));
    html.maybe(entry.list, |html, list| {
        html.markup("on the ").text(list).markup(" list")
    })
}
