//! The answer to a look-up, for browsers without scripts.

use super::{
    callers::what,
    html::Html,
    tables::source_name,
    words::{ahead, count, duration},
};
use crate::api::look_up::{CallerPolicy, LookUp};

/// Returns what each policy does with a caller. `caller`: as it was typed.
pub(super) fn answer(caller: &str, found: &LookUp, now_ms: u64) -> Html {
    let denying: Vec<_> = found.policies.iter().filter(|one| denies(one)).collect();
    let html = Html::new().markup("<div class=\"answer\"><div class=\"heading\"><h3>");
    let html = html.foreign(caller);
    let html = match denying.is_empty() {
        true => html.markup(" <span class=\"note\">no policy denies it</span>"),
        false => html
            .markup(" <span class=\"bad\">✕ Denied by ")
            .each(denying.iter().enumerate(), |html, (index, one)| {
                html.markup(if index > 0 { ", " } else { "" })
                    .foreign(&one.policy)
            })
            .markup("</span>"),
    };
    let html = html.markup("</h3></div><div class=\"policies\">");
    let html = html.each(&found.policies, |html, one| policy(html, one, now_ms));
    html.markup("</div></div>")
}

fn denies(one: &CallerPolicy) -> bool {
    match one.list {
        Some(list) => list == "deny",
        None => one.mode == "enforce" && (one.banned || one.allowed == Some(false)),
    }
}

fn policy(html: Html, one: &CallerPolicy, now_ms: u64) -> Html {
    let html = html
        .markup("<article class=\"policy\"><header><h4>")
        .foreign(&one.policy);
    let html = html
        .markup(" <small>")
        .foreign(&one.limiter)
        .markup("</small></h4>");
    let html = html.markup(verdict(one)).markup("</header><dl>");
    let html = facts(one, now_ms)
        .into_iter()
        .fold(html, |html, (name, value)| {
            let html = html.markup("<div><dt>").markup(name).markup("</dt><dd>");
            html.text(&value).markup("</dd></div>")
        });
    let html = html.markup("</dl>");
    let html = html.maybe(one.error.as_ref(), |html, error| {
        html.markup("<p class=\"problem\">")
            .text(error)
            .markup("</p>")
    });
    let html = html
        .markup("<ul class=\"entries\">")
        .each(&one.entries, |html, entry| {
            let html = what(html.markup("<li>"), entry).markup(", set by ");
            let html = html.foreign(entry.author.as_deref().unwrap_or("an operator"));
            let html = html.maybe(entry.until_ms, |html, until_ms| {
                html.markup(", ends ").text(&ahead(until_ms, now_ms))
            });
            let html = html.maybe(entry.reason.as_ref(), |html, reason| {
                html.markup(": ").foreign(reason)
            });
            html.markup("</li>")
        });
    let html = html.markup("</ul><p class=\"keys\">");
    let html = html.maybe(one.fingerprint.as_ref(), |html, print| {
        html.markup("caller <code>").text(print).markup("</code>")
    });
    let html = html.maybe(one.storage_key.as_ref(), |html, key| {
        html.markup(" in <code>").text(key).markup("</code>")
    });
    html.markup("</p></article>")
}

fn verdict(one: &CallerPolicy) -> &'static str {
    if let Some(list) = one.list {
        return match list {
            "deny" => "<span class=\"badge bad\">✕ On the deny list</span>",
            _ => "<span class=\"badge good\">✓ On the allow list</span>",
        };
    }
    match (one.mode, one.banned, one.allowed) {
        ("off", ..) => "<span class=\"badge\">Off</span>",
        (_, false, None) => "<span class=\"badge warn\">! Unknown</span>",
        (_, false, Some(true)) => "<span class=\"badge good\">✓ Has room</span>",
        ("shadow", ..) => "<span class=\"badge warn\">! Would be denied</span>",
        (_, true, _) => "<span class=\"badge bad\">✕ Banned</span>",
        (_, false, Some(false)) => "<span class=\"badge bad\">✕ No room</span>",
    }
}

fn facts(one: &CallerPolicy, now_ms: u64) -> Vec<(&'static str, String)> {
    let left = one.remaining.zip(one.limit);
    let room = match one.banned {
        true => one.banned_until_ms.map(|until_ms| ahead(until_ms, now_ms)),
        false => one
            .retry_after_ms
            .filter(|_| one.allowed == Some(false))
            .map(|ms| format!("in {}", duration(ms))),
    };
    let source = one.source.filter(|source| *source != "store");
    let facts = [
        (
            "Left",
            left.map(|(remaining, limit)| format!("{} of {}", count(remaining), count(limit))),
        ),
        ("Quota", one.quota.clone()),
        ("Room", room),
        (
            "Full again",
            one.reset_after_ms
                .filter(|ms| *ms > 0)
                .map(|ms| format!("in {}", duration(ms))),
        ),
        ("Held", one.held.filter(|held| *held > 0).map(count)),
        (
            "Bucket",
            one.shared.then(|| "one for all callers".to_owned()),
        ),
        (
            "Decided by",
            source.map(|source| source_name(source).to_owned()),
        ),
    ];
    let known = facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    known.collect()
}
