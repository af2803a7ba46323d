//! The files of the page, and its markup. Whole pages are in `tests/admin/page.rs`.

use std::collections::BTreeMap;

use maud::html;
use proptest::prelude::*;
use tower_throttle::{
    FixedWindow, Limiter, MemoryStore, Policy,
    control::Caller,
    metrics::{Decisions, StoreMetrics},
};

use super::{
    ICON, SCRIPT, STYLE, View, answer,
    ask::{Ask, parts_of},
    callers, login_page,
    tables::SOURCES,
    text::{foreign, written},
    tiles,
};
use crate::{
    access::Access,
    api::{look_up::CallerPolicy, recent::Totals},
    base::Base,
    shared::Shared,
    who::Who,
};

const MOST_BYTES: usize = 60 * 1024;

#[test]
fn all_files_together_are_small() {
    let all = STYLE.len() + SCRIPT.len() + ICON.len();
    assert!(all < MOST_BYTES, "{all} bytes");
}

/// Texts become markup or code by these. One function swaps parts that the server has rendered.
#[test]
fn the_script_makes_no_markup_of_texts() {
    let names = "innerHTML outerHTML insertAdjacentHTML setHTML parseHTML document.write \
                 createContextualFragment srcdoc eval( Function( setAttribute(\"style\" javascript:";
    for name in names.split(' ') {
        assert!(!SCRIPT.contains(name), "{name}");
    }
    assert_eq!(SCRIPT.matches("DOMParser").count(), 1);
    // What it parses is an answer of this origin.
    assert_eq!(SCRIPT.matches("fetch(").count(), 1);
    assert!(SCRIPT.contains("fetch(new URL(path, base), options)"));
    assert!(SCRIPT.contains("redirect: \"error\""));
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn each_source_of_decisions_has_a_name() {
    let mut known: Vec<_> = Decisions::default()
        .by_source()
        .map(|(name, _)| name)
        .collect();
    let mut named = SOURCES.map(|(name, ..)| name);
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(known, named);
}

#[test]
fn the_login_says_why_it_asks_again() {
    let base = Base("./\"><a/".to_owned());
    let page = login_page(&base, "the token is <wrong>").0;
    assert!(page.contains("action=\"./&quot;&gt;&lt;a/session\""));
    assert!(page.contains(">the token is &lt;wrong&gt;</p>"));
    // It is for people who have never seen the code of the application.
    assert!(!page.contains("Access::") && !page.contains("<script"));
}

#[test]
fn a_long_text_is_shortened_and_kept_in_full_beside_it() {
    let long = "é".repeat(61);
    let shown = foreign(&long).into_string();
    let short = "é".repeat(59);
    assert_eq!(shown, format!("<bdi title=\"{long}\">{short}…</bdi>"));
    let whole = "é".repeat(60);
    assert_eq!(foreign(&whole).into_string(), format!("<bdi>{whole}</bdi>"));
}

#[test]
fn a_caller_of_several_parts_has_spaces_between_them() {
    let parts = parts_of(" header:x-api-key=k1  ip:203.0.113.9 ");
    assert_eq!(parts, ["header:x-api-key=k1", "ip:203.0.113.9"]);
    for text in ["k1", "ann of text:shop", "text:ann miller", ""] {
        assert_eq!(parts_of(text), [text]);
        assert_eq!(parts_of(&format!(" {text}\t")), [text]);
    }
    let parts = "text number ip fingerprint header cookie bearer method";
    for part in parts.split(' ') {
        assert_eq!(parts_of(&format!("{part}:a {part}:b")).len(), 2, "{part}");
    }
}

/// Returns what the tile says, if the store made that many of the last decisions, and that many were
/// made without it.
fn store_tile(
    up: bool,
    is_redis: bool,
    decided: u64,
    (failed, why): (u64, &'static str),
) -> String {
    let mut store = StoreMetrics::new("main");
    store.is_up = up;
    store.breakers_open = is_redis.then_some(0);
    let recent = Totals {
        seconds: 10.0,
        // Lists decide without a store.
        counts: BTreeMap::from([("store", decided), ("local", failed), ("list", 40)]),
        failures: BTreeMap::from([(why, failed)]),
    };
    let tile = tiles::store(&[store], &recent).into_string();
    let (_, value) = tile.split_once("<p class=\"value ").unwrap();
    let (value, rest) = value.split_once("</p>").unwrap();
    assert_eq!(rest.contains("Down: <bdi>main</bdi>"), !up, "{tile}");
    value.rsplit('>').next().unwrap().to_owned()
}

#[test]
fn the_tile_of_the_store_says_how_much_it_decides_and_why_not_all() {
    // Whether it is up, decisions with and without it, and the kind of the failures.
    let tiles = "up 0 0 timeout = Yes
        up 100 0 timeout = Yes
        up 93 7 timeout = Mostly (93 %, 7 % failed: timeout)
        up 927 73 refused = Mostly (92.7 %, 7.3 % failed: refused)
        up 10 90 unavailable = No (10 %, 90 % failed: unavailable)
        down 10 90 timeout = No (10 %, 90 % failed: timeout)
        down 0 50 timeout = No (100 % failed: timeout)
        down 0 0 timeout = No: it did not answer
        down 50 0 timeout = Mostly: it answers again";
    // Never yes beside a store that is down.
    for tile in tiles.lines() {
        let (given, expected) = tile.trim().split_once(" = ").unwrap();
        let [up, decided, failed, why] = given.split(' ').collect::<Vec<_>>()[..] else {
            unreachable!("{given}");
        };
        let failed = (failed.parse().unwrap(), why);
        let shown = store_tile(up == "up", true, decided.parse().unwrap(), failed);
        assert_eq!(shown, expected, "{given}");
    }
    let in_memory = store_tile(true, false, 9, (0, "timeout"));
    assert_eq!(in_memory, "No Redis: in memory");
}

#[test]
fn denials_that_are_in_no_list_are_counted() {
    let note = |missed| callers::note(missed).into_string();
    assert!(!note(0).contains("in no list"));
    assert!(note(1).contains("1 more is in no list"));
    assert!(note(1_234).contains("1,234 more are in no list"));
}

/// Looks up a caller who has this left of ten in a policy.
async fn caller_policy(policy: &str, remaining: u64) -> CallerPolicy {
    let quota = FixedWindow::per_hour(10);
    let limiter = Limiter::new(MemoryStore::new(), Policy::new(policy, quota));
    let spent = limiter.check_n("ann", 10 - remaining).await.unwrap();
    assert!(spent.is_allowed());
    let caller = Caller::parse(&["ann"]).unwrap();
    let mut states = limiter.inspect().look_up(&caller, None).await;
    CallerPolicy {
        state: states.remove(0),
        followed: None,
    }
}

/// Those that deny come first, then what needs a look, and the others take a line each.
#[tokio::test]
async fn policies_without_news_take_a_line_at_the_end() {
    let mut found = Vec::new();
    for (name, left) in [("full", 10), ("low", 2), ("empty", 0), ("half", 5)] {
        found.push(caller_policy(name, left).await);
    }
    let access = Access::check(|_| None);
    let shared = Shared::new(access);
    let view = View::new(shared.into(), Who::new("ann"));
    let shown = answer::answer(&Ask::default(), &found, &view).into_string();
    let cards = shown.split("<article class=\"").skip(1);
    let cards = cards.map(|card| {
        let (class, rest) = card.split_once('"').unwrap();
        let (_, name) = rest.split_once("data-policy=\"").unwrap();
        (class, name.split_once('"').unwrap().0)
    });
    let (whole, brief) = ("policy", "policy brief");
    let expected = [
        (whole, "empty"),
        (whole, "low"),
        (brief, "full"),
        (brief, "half"),
    ];
    assert_eq!(cards.collect::<Vec<_>>(), expected);
    assert!(shown.contains("Denied by “empty”."));
}

/// Reads what a browser reads: characters that are named, and the others as they are.
fn read(markup: &str) -> String {
    let quotes = markup
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"");
    quotes.replace("&amp;", "&")
}

proptest! {
    /// Whatever a text is, it is neither an element nor the end of an attribute, and nothing of it
    /// is lost but characters that are not seen.
    #[test]
    fn a_text_stays_a_text(text in ".{0,80}|[<>&\"'a=/ ;#x3-]{0,40}|\\PC*") {
        let markup = written(html! { i title=(text) { (text) } });
        let (attribute, content) = markup
            .strip_prefix("<i title=\"").unwrap()
            .strip_suffix("</i>").unwrap()
            .split_once("\">").unwrap();
        prop_assert_eq!(attribute, content);
        prop_assert!(!content.contains(['<', '>', '"']));
        for (at, _) in content.match_indices('&') {
            let rest = &content[at..];
            let names = ["&lt;", "&gt;", "&quot;", "&amp;"];
            prop_assert!(names.iter().any(|name| rest.starts_with(name)), "{content}");
        }
        let seen = read(content);
        prop_assert_eq!(seen.chars().count(), text.chars().count());
        for (shown, character) in seen.chars().zip(text.chars()) {
            prop_assert!(shown == character || shown == char::REPLACEMENT_CHARACTER);
        }
        prop_assert!(!seen.chars().any(char::is_control));
        let turning = ['\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}'];
        prop_assert!(!seen.contains(turning));
    }

    /// A change is made for the caller that was typed, whatever characters it has.
    #[test]
    fn a_caller_is_the_same_after_its_way_through_the_page(caller in ".{0,40}|[a-z\u{202e}\u{1f600}\"<\\\\ ]{0,20}") {
        let ask = Ask { caller, ..Ask::default() };
        let json = ask.parts_as_json();
        prop_assert!(json.is_ascii() && !json.contains(char::is_control));
        let parts: Vec<String> = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(parts, parts_of(&ask.caller));
    }
}
