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
    shared::{Settings, Shared},
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
    let base = Base("./admin/".to_owned());
    let page = login_page(&base, "the token is <wrong>").0;
    assert!(page.contains("action=\"./admin/session\""));
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

fn stores(up: bool, is_redis: bool) -> [StoreMetrics; 1] {
    let mut store = StoreMetrics::new("main");
    store.is_up = up;
    store.breakers_open = is_redis.then_some(0);
    [store]
}

/// Returns what the tile says, if that many of the last decisions were made by the store, and that
/// many without it.
fn store_tile(up: bool, decided: u64, failed: u64, why: &'static str) -> String {
    let recent = Totals {
        seconds: 10.0,
        // Lists decide without a store.
        counts: BTreeMap::from([("store", decided), ("local", failed), ("list", 40)]),
        failures: BTreeMap::from([(why, failed)]),
    };
    let tile = tiles::store(&stores(up, true), &recent).into_string();
    let (_, value) = tile.split_once("<p class=\"value ").unwrap();
    let (value, rest) = value.split_once("</p>").unwrap();
    assert_eq!(rest.contains("Down: <bdi>main</bdi>"), !up, "{tile}");
    value.rsplit('>').next().unwrap().to_owned()
}

#[test]
fn the_tile_of_the_store_says_how_much_it_decides_and_why_not_all() {
    for (up, decided, failed, why, text) in [
        (true, 0, 0, "timeout", "Yes"),
        (true, 100, 0, "timeout", "Yes"),
        (true, 93, 7, "timeout", "Mostly (93 %, 7 % timed out)"),
        (
            true,
            927,
            73,
            "refused",
            "Mostly (92.7 %, 7.3 % were refused)",
        ),
        (
            true,
            10,
            90,
            "unavailable",
            "No (10 %, 90 % lost their connection)",
        ),
        (false, 10, 90, "timeout", "No (10 %, 90 % timed out)"),
        (false, 0, 50, "timeout", "No (100 % timed out)"),
        (false, 0, 0, "timeout", "No: it did not answer"),
        // Never yes beside a store that is down.
        (false, 50, 0, "timeout", "Mostly: it answers again"),
    ] {
        assert_eq!(
            store_tile(up, decided, failed, why),
            text,
            "{up} {decided} {failed}"
        );
    }
    let in_memory = tiles::store(&stores(true, false), &Totals::default()).into_string();
    assert!(in_memory.contains("No Redis: in memory"));
}

fn view() -> View {
    let access = Access::check(|_| None);
    let shared = Shared::new(Settings::default(), access);
    View::new(shared.into(), Who::new("ann"), None)
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
    let shown = answer::answer(&Ask::default(), &found, &view()).into_string();
    let cards = shown.split("<article class=\"").skip(1);
    let cards = cards.map(|card| {
        let (class, rest) = card.split_once('"').unwrap();
        let (_, name) = rest.split_once("data-policy=\"").unwrap();
        format!("{class}: {}", name.split_once('"').unwrap().0)
    });
    let expected = [
        "policy: empty",
        "policy: low",
        "policy brief: full",
        "policy brief: half",
    ];
    assert_eq!(cards.collect::<Vec<_>>(), expected);
    assert!(shown.contains("Denied by “empty”."));
}

/// Reads what a browser reads: characters that are named, and the others as they are.
fn read(markup: &str) -> String {
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    let each = named.iter();
    each.fold(markup.to_owned(), |text, (name, character)| {
        text.replace(name, character)
    })
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
