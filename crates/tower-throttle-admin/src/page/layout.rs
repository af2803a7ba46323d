//! The page as a whole, and the form for the token.

use std::{
    collections::{BTreeSet, HashSet},
    time::SystemTime,
};

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};

use super::{
    View,
    answer::answer,
    callers, changes, entries, tables,
    text::{Tone, badge, foreign, json, written},
    tiles::tiles,
};
use crate::{base::Base, time::epoch_ms};

impl View {
    pub(super) fn render(&self, base: &Base) -> Html<String> {
        let (shared, now_ms) = (&self.shared, epoch_ms(SystemTime::now()));
        let body = html! {
            body data-now=(now_ms) {
                a.skip href="#look-up" { "Skip to the look-up of a caller" }
                header.top {
                    h1 { "tower-throttle " small { (crate::VERSION) } }
                    p.badges { (self.who()) }
                    p.live id="live" { span.scripted { "connecting" } span.unscripted { "as of now" } }
                    @if shared.access.secret().is_some() {
                        form method="post" action={ (base.0) "session-end" } { button.small type="submit" { "Log out" } }
                    }
                }
                main {
                    (tiles(self))
                    (self.look_up(base))
                    div.columns {
                        div {
                            (callers::denials(self))
                            (callers::top(self))
                            (entries::table(self))
                        }
                        div {
                            (self.traffic())
                            (tables::policies(self))
                        }
                        div.pair { (tables::sources(self)) (tables::stores(self)) }
                    }
                }
                p.hidden id="said" aria-live="polite" {}
                @if shared.changes { (changes::dialogs()) }
            }
        };
        document("Limits", base, true, &body)
    }

    fn who(&self) -> Markup {
        let (who, changes) = (self.who.name(), self.shared.changes);
        html! {
            @if self.shared.access.is_for_all_users() { "open to all users of this machine, " }
            "as " (foreign(who)) " "
            @match changes {
                true => (badge(Tone::Warn, "changes allowed")),
                false => (badge(Tone::Quiet, "read-only")),
            }
        }
    }

    fn look_up(&self, base: &Base) -> Markup {
        let ask = self.asked.as_ref().map(|(ask, _)| ask);
        let policy = ask.map_or("", |ask| &ask.policy);
        let names = self.policies.iter().map(|policy| &policy.state.name);
        let names: BTreeSet<_> = names.collect();
        html! {
            section.card id="look-up" aria-labelledby="look-up-title" tabindex="-1" {
                form.ask id="ask" method="post" action={ (base.0) "look-up" } {
                    h2 id="look-up-title" { "Look up a caller" }
                    div.field.wide {
                        label for="caller" { "Caller" }
                        input id="caller" name="caller" value=[ask.map(|ask| &ask.caller)] required maxlength="4096"
                            autocomplete="off" autocapitalize="off" spellcheck="false" aria-describedby="caller-note";
                    }
                    div.field {
                        label for="policy" { "Policy" }
                        select id="policy" name="policy" data-part {
                            option value="" { "all" }
                            @for name in names { option value=(name) selected[name == policy] { (name) } }
                        }
                    }
                    button type="submit" { "Look up" }
                    p.note id="caller-note" {
                        "A key as the policy reads it (" code { "k1" } "), " code { "ip:203.0.113.9" } ", " code { "number:42" }
                        ", a fingerprint, or parts of a request: " code { "header:x-api-key=k1 method:GET" }
                    }
                }
                p.problem id="ask-problem" role="alert" data-part="answer" {
                    @if let Some((_, Err(problem))) = &self.asked { (problem) }
                }
                div id="result" data-part="answer" {
                    @if let Some((ask, Ok(found))) = &self.asked { (answer(ask, found, self)) }
                }
                div id="result-outcome" {}
            }
        }
    }

    fn traffic(&self) -> Markup {
        let (mut options, mut known) = (Vec::new(), HashSet::new());
        for policy in &self.policies {
            let (limiter, name) = (policy.of.name(), &policy.state.name);
            options.push((json(&[limiter]), limiter.to_owned()));
            options.push((json(&[limiter, name]), format!("{limiter}: {name}")));
        }
        options.retain(|(value, _)| known.insert(value.clone()));
        html! {
            section.card.scripted aria-labelledby="traffic-title" {
                div.heading {
                    h2 id="traffic-title" { "Requests per second" }
                    label.inline {
                        "of "
                        select id="traffic-of" data-part {
                            option value="" { "all requests" }
                            @for (value, names) in options { option value=(value) { (names) } }
                        }
                    }
                }
                div.chart.tall id="traffic-chart" {}
            }
        }
    }
}

/// Returns the page that asks for the token. `message`: why it asks again.
pub(crate) fn login_page(base: &Base, message: &str) -> Html<String> {
    let body = html! {
        body.login {
            main {
                form.card method="post" action={ (base.0) "session" } {
                    h1 { "tower-throttle" }
                    p { "Rate limits of this application: who is denied, and why." }
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" required autofocus autocomplete="current-password"
                        aria-describedby="token-note message";
                    p.problem id="message" role="alert" { (message) }
                    button type="submit" { "Log in" }
                    p.note id="token-note" {
                        "The people who run this application know the token. You stay logged in for 12 hours, if the address "
                        "of this page starts with " code { "https://" } " or " code { "http://localhost" } "."
                    }
                }
            }
        }
    };
    document("Log in", base, false, &body)
}

fn document(title: &str, base: &Base, has_script: bool, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - tower-throttle" }
                link rel="icon" href={ (base.0) "admin.svg" } type="image/svg+xml";
                link rel="stylesheet" href={ (base.0) "admin.css" };
                @if has_script { script type="module" src={ (base.0) "admin.js" } {} }
            }
            (body)
        }
    };
    Html(written(page))
}
