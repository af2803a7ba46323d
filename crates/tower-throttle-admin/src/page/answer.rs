//! The answer to a look-up: what each policy does with one caller.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::{
    Asked, View, changes,
    entries::what,
    tables::{bar, source_name},
    text::{Tone, foreign, json, signed, since, until},
    words::{count, plural},
};
use crate::api::look_up::{CallerPolicy, LookUp};

/// Shows what each policy does with the caller: those that deny it first, and those that let it in
/// in a line each.
pub(super) fn answer(asked: &Asked, found: &LookUp, view: &View) -> Markup {
    let (tone, text) = headline(&found.policies);
    let mut policies: Vec<_> = found.policies.iter().collect();
    policies.sort_by_key(|one| (Reverse(denies(one)), is_brief(one)));
    html! {
        div.answer {
            div.heading {
                h3 id="answer-title" tabindex="-1" {
                    (foreign(&asked.ask.caller)) " " span class=(tone.class()) { (signed(tone, &text)) }
                }
                p.actions.scripted {
                    @if !asked.ask.policy.is_empty() { button.small type="button" data-in-all { "In all policies" } }
                    button.small type="button" data-close-answer { "Close" }
                }
            }
            div.policies { @for one in policies { (card(one, asked, view)) } }
        }
    }
}

fn headline(policies: &[CallerPolicy]) -> (Tone, String) {
    let denying: Vec<_> = policies.iter().filter(|one| denies(one)).collect();
    let names = denying.iter().take(3);
    let names: Vec<_> = names.map(|one| format!("“{}”", one.policy)).collect();
    let more = match denying.len().saturating_sub(3) {
        0 => String::new(),
        more => format!(" and {}", plural(more as u64, "other", "others")),
    };
    let unknown = policies.iter().filter(|one| verdict(one).1 == UNKNOWN);
    let unknown = unknown.count() as u64;
    match (denying.is_empty(), unknown, policies.len()) {
        (false, ..) => (Tone::Bad, format!("Denied by {}{more}.", names.join(", "))),
        (true, 1.., _) => {
            let unknown = plural(unknown, "policy", "policies");
            let text = format!("Unknown for {unknown}; no other denies it.");
            (Tone::Warn, text)
        }
        (true, 0, 1) => (Tone::Good, "The policy lets it in.".to_owned()),
        (true, 0, all) => (Tone::Good, format!("Let in by all {all} policies.")),
    }
}

fn denies(one: &CallerPolicy) -> bool {
    match one.list {
        Some(list) => list == "deny",
        None => one.mode == "enforce" && (one.banned || one.allowed == Some(false)),
    }
}

/// Returns whether there is nothing to say of a policy, but what is left.
fn is_brief(one: &CallerPolicy) -> bool {
    let is_good = verdict(one).0 == Tone::Good && one.list.is_none();
    is_good && one.entries.is_empty() && !is_low(one)
}

fn is_low(one: &CallerPolicy) -> bool {
    let left = one.remaining.zip(one.limit);
    left.is_some_and(|(remaining, limit)| remaining <= limit / 5)
}

const UNKNOWN: &str = "Unknown";

/// Returns what a policy does with the caller, in a word, and explains it unless it is plain.
fn verdict(one: &CallerPolicy) -> (Tone, &'static str, &'static str) {
    let by_list = "The list decides before all policies.";
    let by_operator = "An operator banned this caller.";
    let by_policy = "The policy banned this caller for what it did before.";
    let off = "The policy is switched off: it denies nothing.";
    let shadow = "The policy only counts: it denies nothing.";
    match (one.list, one.mode, one.banned_by, one.allowed) {
        (Some("deny"), ..) => (Tone::Bad, "On the deny list", by_list),
        (Some(_), ..) => (Tone::Good, "On the allow list", by_list),
        (_, "off", ..) => (Tone::Quiet, "Off", off),
        (_, _, None, None) => (Tone::Warn, UNKNOWN, ""),
        (_, _, None, Some(true)) => (Tone::Good, "Has room", ""),
        (_, "shadow", ..) => (Tone::Warn, "Would be denied", shadow),
        (_, _, Some("operator"), _) => (Tone::Bad, "Banned", by_operator),
        (_, _, Some(_), _) => (Tone::Bad, "Banned", by_policy),
        _ if one.retry_after_ms.is_none() => (Tone::Bad, "No room", "Waiting does not help."),
        _ => (Tone::Bad, "No room", ""),
    }
}

fn card(one: &CallerPolicy, asked: &Asked, view: &View) -> Markup {
    let (tone, word, why) = verdict(one);
    let left = one.remaining.zip(one.limit);
    let left_text =
        left.map(|(remaining, limit)| format!("{} of {} left", count(remaining), count(limit)));
    let now = [
        left_text.clone(),
        one.quota.clone(),
        one.banned.then(|| "banned".to_owned()),
    ];
    let now: Vec<_> = now.into_iter().flatten().collect();
    let (caller, subject) = match one.shared {
        true => ("[\"everyone:\"]".to_owned(), "all callers"),
        false => (asked.ask.parts_as_json(), &*asked.ask.caller),
    };
    let bar_tone = match tone {
        Tone::Good if is_low(one) => Tone::Warn,
        tone => tone,
    };
    html! {
        article.policy.brief[is_brief(one)] data-key={ (one.limiter) "/" (one.policy) }
            data-policy=(one.policy) data-limiter=(one.limiter) data-caller=(caller)
            data-subject={ (subject) " in " (one.policy) } data-now=(now.join(", "))
            data-quota=[one.quota.as_deref()] data-outcome="result-outcome" {
            header {
                h4 { (foreign(&one.policy)) @if view.has_several_limiters() { " " small { (foreign(&one.limiter)) } } }
                span class={ "badge " (tone.class()) } { (signed(tone, word)) }
            }
            @if !why.is_empty() { p { (why) } }
            @if let Some(error) = &one.error { p.problem { (error) } }
            (tiers(one, view))
            @if let (Some((remaining, limit)), Some(text)) = (left, &left_text) {
                div.usage { (bar(bar_tone, remaining, limit)) b { (text) } }
            }
            (facts(one, view.status.now_ms))
            (entries(one, view.status.now_ms))
            p.actions.scripted { (changes::buttons(one, view)) }
            @if !is_brief(one) || one.storage_key.is_some() {
                p.keys {
                    @if let Some(print) = &one.fingerprint { "caller " code { (print) } }
                    @if let Some(key) = &one.storage_key { " in " code { (key) } }
                }
            }
        }
    }
}

/// Offers the quotas that requests have chosen, if the quota of this caller is not known.
fn tiers(one: &CallerPolicy, view: &View) -> Markup {
    let is_own = |policy: &&crate::api::policies::Policy| {
        (&policy.limiter, &policy.name) == (&one.limiter, &one.policy) && policy.quota.is_none()
    };
    let own = view.policies.iter().find(is_own);
    let tiers = own.map_or(&[][..], |policy| &policy.tiers);
    html! {
        @if !tiers.is_empty() {
            p.actions {
                "Each request chooses its quota. Look up in:"
                @for tier in tiers {
                    button.small type="submit" form="ask" name="tier"
                        value=(json(&(&one.policy, tier))) { (tier) }
                }
            }
        }
    }
}

fn facts(one: &CallerPolicy, now_ms: u64) -> Markup {
    let in_ms = |ms: u64| until(now_ms.saturating_add(ms), now_ms);
    let retry_ms = one.retry_after_ms.filter(|_| one.allowed == Some(false));
    html! {
        dl {
            @if let Some(quota) = &one.quota { (fact("Quota", &html! { (quota) })) }
            @if one.banned { @if let Some(at_ms) = one.banned_until_ms { (fact("Room", &until(at_ms, now_ms))) } }
            @else if let Some(ms) = retry_ms { (fact("Room", &in_ms(ms))) }
            @if let Some(ms) = one.reset_after_ms.filter(|ms| *ms > 0) { (fact("Full again", &in_ms(ms))) }
            @if let Some(held) = one.held.filter(|held| *held > 0) { (fact("Held", &html! { (count(held)) " by requests under way" })) }
            @if one.shared { (fact("Bucket", &html! { "one for all callers" })) }
            @if one.mode == "shadow" { (fact("Mode", &html! { "shadow" })) }
            @if let Some(source) = one.source.filter(|source| *source != "store") { (fact("Decided by", &html! { (source_name(source)) })) }
        }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div data-key=(name) { dt { (name) } dd { (value) } } }
}

fn entries(one: &CallerPolicy, now_ms: u64) -> Markup {
    html! {
        ul.entries {
            @for entry in &one.entries {
                li {
                    (what(entry))
                    @if let Some(label) = &entry.label { " (" (foreign(label)) ")" }
                    ", set by " (foreign(entry.author.as_deref().unwrap_or("an operator"))) ", " (since(entry.created_ms, now_ms))
                    @match entry.until_ms {
                        Some(until_ms) => { ", ends " (until(until_ms, now_ms)) },
                        None => ", until it is removed",
                    }
                    @if let Some(reason) = &entry.reason { ": " (foreign(reason)) }
                }
            }
        }
    }
}
