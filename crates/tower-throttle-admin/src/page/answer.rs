//! The answer to a look-up: what each policy does with one caller.

use std::time::SystemTime;

use maud::{Markup, html};
use tower_throttle::{List, PolicyDecision, Source, control::Mode};

use super::{
    View,
    ask::Ask,
    changes,
    entries::{author, end, what},
    tables::{bar, source_name},
    text::{Tone, foreign, json, signed, since, until},
    words::{count, plural},
};
use crate::api::look_up::CallerPolicy;

/// Shows what each policy does with the caller: those that deny it first, and those that let it in
/// in a line each.
pub(super) fn answer(ask: &Ask, found: &[CallerPolicy], view: &View) -> Markup {
    let (tone, text) = headline(found);
    let mut policies: Vec<_> = found.iter().collect();
    policies.sort_by_key(|one| (!denies(one), is_brief(one)));
    html! {
        div.answer {
            div.heading {
                h3 id="answer-title" tabindex="-1" {
                    (foreign(&ask.caller)) " " span class=(tone.class()) { (signed(tone, &text)) }
                }
                p.actions.scripted {
                    @if !ask.policy.is_empty() { button.small type="button" data-in-all { "In all policies" } }
                    button.small type="button" data-close-answer { "Close" }
                }
            }
            div.policies { @for one in policies { (card(one, ask, view)) } }
        }
    }
}

fn headline(found: &[CallerPolicy]) -> (Tone, String) {
    let denying = found.iter().filter(|one| denies(one));
    let denying: Vec<_> = denying
        .map(|one| format!("“{}”", one.state.policy))
        .collect();
    let unknown = found.iter().filter(|one| verdict(one).1 == UNKNOWN);
    match (denying.len(), unknown.count() as u64, found.len()) {
        (1..=3, ..) => (Tone::Bad, format!("Denied by {}.", denying.join(", "))),
        (many @ 4.., ..) => (Tone::Bad, format!("Denied by {many} policies.")),
        (0, unknown @ 1.., _) => {
            let unknown = plural(unknown, "policy", "policies");
            (
                Tone::Warn,
                format!("Unknown for {unknown}; no other denies it."),
            )
        }
        (0, 0, 1) => (Tone::Good, "The policy lets it in.".to_owned()),
        (0, 0, all) => (Tone::Good, format!("Let in by all {all} policies.")),
    }
}

fn denies(one: &CallerPolicy) -> bool {
    verdict(one).0 == Tone::Bad
}

/// Returns whether the remaining units are all that a policy has to show.
fn is_brief(one: &CallerPolicy) -> bool {
    let is_good = verdict(one).0 == Tone::Good && one.state.list.is_none();
    is_good && one.state.entries.is_empty() && !is_low(one)
}

fn is_low(one: &CallerPolicy) -> bool {
    let found = one.decision();
    found.is_some_and(|found| found.remaining() <= found.capacity() / 5)
}

const UNKNOWN: &str = "Unknown";

/// Returns what a policy does with the caller, in a word, and explains it unless it is plain.
fn verdict(one: &CallerPolicy) -> (Tone, &'static str, &'static str) {
    let by_list = "The list decides before all policies.";
    let by_operator = "An operator banned this caller.";
    let by_policy = "The policy banned this caller for what it did before.";
    let off = "The policy is switched off: it denies nothing.";
    let shadow = "The policy only counts: it denies nothing.";
    let wait = one.decision().and_then(PolicyDecision::retry_after);
    match (one.state.list, one.state.mode, one.ban(), one.allowed()) {
        (Some(List::Deny), ..) => (Tone::Bad, "On the deny list", by_list),
        (Some(List::Allow), ..) => (Tone::Good, "On the allow list", by_list),
        (_, Mode::Off, ..) => (Tone::Quiet, "Off", off),
        (_, _, None, None) => (Tone::Warn, UNKNOWN, ""),
        (_, _, None, Some(true)) => (Tone::Good, "Has room", ""),
        (_, Mode::Shadow, ..) => (Tone::Warn, "Would be denied", shadow),
        (_, _, Some(("operator", _)), _) => (Tone::Bad, "Banned", by_operator),
        (_, _, Some(_), _) => (Tone::Bad, "Banned", by_policy),
        _ if wait.is_none() => (Tone::Bad, "No room", "Waiting does not help."),
        _ => (Tone::Bad, "No room", ""),
    }
}

fn card(one: &CallerPolicy, ask: &Ask, view: &View) -> Markup {
    let (state, found, (tone, word, why)) = (&one.state, one.decision(), verdict(one));
    let left = found.map(|found| {
        let (remaining, limit) = (count(found.remaining()), count(found.capacity()));
        format!("{remaining} of {limit} left")
    });
    let quota = state.quota.map(|quota| quota.to_string());
    let banned = one.ban().map(|_| "banned".to_owned());
    let now = [left.clone(), quota.clone(), banned];
    let now: Vec<_> = now.into_iter().flatten().collect();
    let (caller, subject) = match state.is_shared {
        true => ("[\"everyone:\"]".to_owned(), "all callers"),
        false => (ask.parts_as_json(), &*ask.caller),
    };
    let bar_tone = match tone {
        Tone::Good if is_low(one) => Tone::Warn,
        tone => tone,
    };
    html! {
        article.policy.brief[is_brief(one)] data-key={ (state.limiter) "/" (state.policy) }
            data-policy=(state.policy) data-limiter=(state.limiter) data-caller=(caller)
            data-subject={ (subject) " in " (state.policy) } data-now=(now.join(", "))
            data-quota=[quota] data-outcome="result-outcome" {
            header {
                h4 { (foreign(&state.policy)) @if view.has_several_limiters() { " " small { (foreign(&state.limiter)) } } }
                span class={ "badge " (tone.class()) } { (signed(tone, word)) }
            }
            @if !why.is_empty() { p { (why) } }
            @if let Err(why) = &state.bucket { p.problem { (why) } }
            (tiers(one, view))
            @if let (Some(found), Some(left)) = (found, left) {
                div.usage { (bar(bar_tone, found.remaining(), found.capacity())) b { (left) } }
            }
            (facts(one))
            (entries(one))
            p.actions.scripted { (changes::buttons(one, view)) }
            @if !is_brief(one) || state.storage_key.is_some() {
                p.keys {
                    @if let Some(print) = state.fingerprint { "caller " code { (print) } }
                    @if let Some(key) = &state.storage_key { " in " code { (key) } }
                }
            }
        }
    }
}

/// Offers the quotas that requests have chosen, if the quota of this caller is not known.
fn tiers(one: &CallerPolicy, view: &View) -> Markup {
    let (limiter, name) = (&one.state.limiter, &one.state.policy);
    let mut policies = view.policies.iter();
    let own = policies.find(|one| (one.of.name(), &one.state.name) == (limiter, name));
    let tiers = own.map_or(&[][..], |policy| &policy.state.tiers);
    html! {
        @if !tiers.is_empty() {
            p.actions {
                "Each request chooses its quota. Look up in:"
                @for tier in tiers {
                    button.small type="submit" form="ask" name="tier"
                        value=(json(&(name, tier.to_string()))) { (tier) }
                }
            }
        }
    }
}

fn facts(one: &CallerPolicy) -> Markup {
    let (state, found) = (&one.state, one.decision());
    let now = SystemTime::now();
    let retry = found.and_then(PolicyDecision::retry_after);
    let retry = retry.filter(|_| one.allowed() == Some(false));
    let banned = one.ban().map(|(_, until)| until);
    let reset = found.map(PolicyDecision::reset_after);
    let held = found.map_or(0, PolicyDecision::held_by_all_requests);
    let source = state.bucket.as_ref().map(|bucket| bucket.source);
    html! {
        dl {
            @if let Some(quota) = state.quota { (fact("Quota", &html! { (quota) })) }
            @if let Some(at) = banned.or(retry.map(|wait| now + wait)) { (fact("Room", &until(at))) }
            @if let Some(wait) = reset.filter(|wait| !wait.is_zero()) { (fact("Full again", &until(now + wait))) }
            @if held > 0 { (fact("Held", &html! { (count(held)) " by requests under way" })) }
            @if state.is_shared { (fact("Bucket", &html! { "one for all callers" })) }
            @if state.mode == Mode::Shadow { (fact("Mode", &html! { "shadow" })) }
            @if let Some(source) = source.ok().filter(|source| *source != Source::Store) { (fact("Decided by", &html! { (source_name(source)) })) }
        }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div data-key=(name) { dt { (name) } dd { (value) } } }
}

fn entries(one: &CallerPolicy) -> Markup {
    html! {
        ul.entries {
            @for entry in &one.state.entries {
                li {
                    (what(entry))
                    @if let Some(label) = &entry.label { " (" (foreign(label)) ")" }
                    ", set by " (author(entry)) ", " (since(entry.created)) ", ends " (end(entry))
                    @if let Some(reason) = &entry.reason { ": " (foreign(reason)) }
                }
            }
        }
    }
}
