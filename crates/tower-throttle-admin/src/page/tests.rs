//! The files of the page, and its markup.

use proptest::prelude::*;
use tower_throttle::{DenialReason, metrics::Decisions};

use super::{
    PARTS,
    assets::{self, LOGIN, PAGE},
    callers,
    html::{Html, fill},
    numbers, parts_of,
    render::login_page,
    tables::SOURCES,
};
use crate::{base::Base, repository};

const MOST_BYTES: usize = 60 * 1024;

#[test]
fn all_files_together_are_small() {
    let files = assets::all()
        .iter()
        .map(|(_, _, text)| text.len())
        .sum::<usize>();
    let all = files + PAGE.len() + LOGIN.len();
    assert!(all < MOST_BYTES, "{all} bytes");
}

/// The policy of the page's content forbids these.
#[test]
fn no_markup_has_a_script_or_a_style_of_its_own() {
    for markup in [&*PAGE, &*LOGIN] {
        for tag in markup
            .split('<')
            .skip(1)
            .map(|tag| tag.split('>').next().unwrap_or_default())
        {
            assert!(
                !tag.starts_with("style") && !tag.starts_with("base"),
                "{tag}"
            );
            assert!(
                !tag.starts_with("script") || tag.contains(" src=\""),
                "{tag}"
            );
            for attribute in tag.split(' ').skip(1) {
                assert!(
                    !attribute.starts_with("style=") && !attribute.starts_with("on"),
                    "{tag}"
                );
            }
        }
        assert!(markup.contains("</html>"));
    }
}

/// Texts become markup or code by these.
#[test]
fn the_script_makes_no_markup_of_texts() {
    let (_, _, script) = assets::all()
        .into_iter()
        .find(|(path, ..)| *path == "/admin.js")
        .unwrap();
    for name in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
        "eval(",
        "Function(",
        "setAttribute(\"style\"",
        "javascript:",
    ] {
        assert!(!script.contains(name), "{name}");
    }
    assert!(script.contains("createElementNS") && script.contains("startPage();"));
}

#[test]
fn urls_of_files_are_relative() {
    let (_, _, style) = assets::all()
        .into_iter()
        .find(|(path, ..)| *path == "/admin.css")
        .unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"));
    for markup in [&*PAGE, &*LOGIN] {
        for name in ["src=\"", "href=\"", "action=\""] {
            for value in markup.split(name).skip(1) {
                assert!(
                    value.starts_with("{{base}}") || value.starts_with('#'),
                    "{name}{value}"
                );
            }
        }
    }
}

/// What the guide names is on the page, and the other way round.
#[test]
fn the_guide_has_all_parts_of_the_page() {
    let Some(guide) = repository::read("docs/admin.md") else {
        return;
    };
    let parts = guide
        .split("\n| **")
        .skip(1)
        .map(|row| row.split("**").next().unwrap());
    let mut parts: Vec<&str> = parts.collect();
    let titles = PAGE
        .split("</h2>")
        .map(|before| before.rsplit('>').next().unwrap());
    let mut titles: Vec<&str> = titles.filter(|title| !title.trim().is_empty()).collect();
    titles.retain(|title| *title != "Look up a caller");
    parts.sort_unstable();
    titles.sort_unstable();
    assert_eq!(parts, titles);
}

fn script() -> &'static str {
    let files = assets::all().into_iter();
    let mut scripts = files.filter(|(path, ..)| *path == "/admin.js");
    scripts.next().unwrap().2
}

/// Returns what is between two texts of the script.
fn in_script(start: &str, end: &str) -> &'static str {
    let (_, rest) = script().split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// The page is in the same words before and after the script takes over.
#[test]
fn the_script_has_the_words_of_the_server() {
    let sources = in_script("const SOURCES = [", "];");
    let sources = sources.split("[\"").skip(1).map(|row| {
        let mut texts = row.split('"').step_by(2);
        (texts.next().unwrap(), texts.next().unwrap())
    });
    assert_eq!(sources.collect::<Vec<_>>(), SOURCES);
    let mut known: Vec<_> = Decisions::default()
        .by_source()
        .map(|(name, _)| name)
        .collect();
    let mut named = SOURCES.map(|(name, _)| name);
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(known, named);

    let reasons = [
        DenialReason::QuotaExceeded,
        DenialReason::Banned,
        DenialReason::CostImpossible,
        DenialReason::KeyMissing,
        DenialReason::Listed,
        DenialReason::StoreFailed,
        DenialReason::Misconfigured,
    ];
    let reasons = reasons.map(|reason| {
        let name = numbers::reason(reason);
        format!("{name}: \"{}\",", callers::reason(name))
    });
    let written = in_script("const REASONS = {", "};");
    let written: Vec<_> = written.split_whitespace().collect();
    assert_eq!(written.join(" "), reasons.join(" "));

    for word in [callers::SHADOW, "one bucket for all callers", "counts by "] {
        assert!(script().contains(word), "{word}");
    }

    let parts = PARTS.map(|part| part.trim_end_matches(':')).join("|");
    assert_eq!(in_script("const PART = /^(", "):/;"), parts);
}

#[test]
fn the_script_hides_the_characters_that_the_server_hides() {
    let written = in_script("const HIDDEN = /[\\p{Cc}", "]/gu;");
    let codes = written.split("\\u").skip(1).map(|code| {
        let (code, dash) = code.split_at(4);
        (u32::from_str_radix(code, 16).unwrap(), dash == "-")
    });
    let codes: Vec<_> = codes.collect();
    let is_hidden = |character: char| {
        let mut ranges = codes.iter().zip(1..).map(|(&(first, is_range), next)| {
            let last = if is_range { codes[next].0 } else { first };
            first..=last
        });
        character.is_control() || ranges.any(|range| range.contains(&u32::from(character)))
    };
    for character in '\0'..'\u{fffd}' {
        let shown = Html::new().text(&character.to_string()).into_string();
        assert_eq!(shown == "\u{fffd}", is_hidden(character), "{character:?}");
    }
}

#[test]
fn the_login_says_why_it_asks_again() {
    let base = Base("./admin/".to_owned());
    let page = login_page(&base, "the token is <wrong>");
    assert!(page.contains("action=\"./admin/session\""));
    assert!(page.contains(">the token is &lt;wrong&gt;</p>"));
    assert!(!page.contains("{{"));
}

#[test]
fn placeholders_are_filled_once() {
    let content = |name: &str| Html::new().text(name).text("{{b}}");
    assert_eq!(fill("1{{a}}2{{b}}3", content), "1a{{b}}2b{{b}}3");
    assert_eq!(fill("none", content), "none");
}

#[test]
fn a_long_text_is_shortened_and_kept_in_full_beside_it() {
    let long = "é".repeat(61);
    let shown = Html::new().foreign(&long).into_string();
    let short = "é".repeat(59);
    assert_eq!(shown, format!("<bdi title=\"{long}\">{short}…</bdi>"));
    let whole = "é".repeat(60);
    assert_eq!(
        Html::new().foreign(&whole).into_string(),
        format!("<bdi>{whole}</bdi>")
    );
}

#[test]
fn a_caller_of_several_parts_has_spaces_between_them() {
    let parts = parts_of(" header:x-api-key=k1  ip:203.0.113.9 ");
    assert_eq!(parts, ["header:x-api-key=k1", "ip:203.0.113.9"]);
    for text in ["k1", "ann of text:shop", "text:ann miller", ""] {
        assert_eq!(parts_of(text), [text]);
        assert_eq!(parts_of(&format!(" {text}\t")), [text]);
    }
}

/// Reads what a browser reads: characters that are named, and the others as they are.
fn read(markup: &str) -> String {
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
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
        let markup = Html::new().text(&text).into_string();
        prop_assert!(!markup.contains(['<', '>', '"', '\'']));
        for (at, _) in markup.match_indices('&') {
            let rest = &markup[at..];
            let names = ["&lt;", "&gt;", "&quot;", "&#39;", "&amp;"];
            prop_assert!(names.iter().any(|name| rest.starts_with(name)), "{markup}");
        }
        let seen = read(&markup);
        prop_assert_eq!(seen.chars().count(), text.chars().count());
        for (shown, character) in seen.chars().zip(text.chars()) {
            prop_assert!(shown == character || shown == char::REPLACEMENT_CHARACTER);
        }
        prop_assert!(!seen.chars().any(char::is_control));
        let turning = ['\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}'];
        prop_assert!(!seen.contains(turning));
    }
}
