//! Each bad file of the table `bad.toml`, with its exact messages beside it.

use std::{collections::BTreeSet, env, fs};

use serde_json::Value;
use tower_throttle::key;
use tower_throttle_config::{Config, ConfigErrors, Readers};

const TABLE: &str = "tests/config/bad.toml";
/// Writes the messages, where they are meant to change: `TT_WRITE=1 cargo test ..`.
const WRITE: &str = "TT_WRITE";

fn table() -> String {
    fs::read_to_string(TABLE).expect("the table")
}

/// The name, the text and the messages of each bad file. A new one has no messages yet.
fn cases() -> Vec<[String; 3]> {
    let table: Value = toml::from_str(&table()).expect("TOML");
    let text = |case: &Value, field: &str| case[field].as_str().unwrap_or_default().to_owned();
    let cases = table["case"].as_array().expect("cases").iter();
    let cases = cases.map(|case| ["name", "text", "expected"].map(|field| text(case, field)));
    cases.collect()
}

fn errors(text: &str) -> ConfigErrors {
    let readers = Readers::new()
        .key("tenant", key::global())
        .quota("plan", |_| None);
    let built = Config::from_toml(text).and_then(|config| config.readers(readers).build());
    built.err().unwrap_or_else(|| panic!("no mistake: {text}"))
}

/// Returns a text as TOML: as it is, if that is possible.
fn literal(text: &str) -> String {
    let is_plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    if text.ends_with('\n') && !text.contains("'''") && text.chars().all(is_plain) {
        format!("'''\n{text}'''")
    } else {
        // Each text of JSON is one of TOML.
        Value::from(text).to_string()
    }
}

#[test]
fn every_bad_file_has_its_exact_messages() {
    let cases = cases();
    assert!(cases.len() >= 60, "{} files", cases.len());
    assert!(cases.is_sorted());
    let former = table();
    let (head, _) = former.split_once("\n[[case]]").expect("a case");
    let (mut table, mut wrong) = (head.to_owned(), String::new());
    for [name, text, expected] in cases {
        let found = format!("{}\n", errors(&text));
        if found != expected {
            wrong.push_str(&format!("{name}: expected:\n{expected}found:\n{found}\n"));
        }
        let [text, found] = [text, found].map(|text| literal(&text));
        table.push_str(&format!(
            "\n[[case]]\nname = \"{name}\"\ntext = {text}\nexpected = {found}\n"
        ));
    }
    if env::var_os(WRITE).is_some() {
        return fs::write(TABLE, table).expect("the table");
    }
    let help = format!("{wrong}with {WRITE}=1 these are the messages");
    assert!(wrong.is_empty(), "{help}");
}

/// Also in the form that `main` prints: an error that it returns is shown by `Debug`.
#[test]
fn every_message_names_its_place_and_what_to_change() {
    for [_, text, _] in cases() {
        let errors = errors(&text);
        assert_eq!(format!("{errors:?}"), format!("\n{errors}"));
        for problem in errors.problems() {
            let (message, code) = (problem.message(), problem.code());
            let is_proposal = ["; ", "expected ", "this is not TOML: "];
            let is_proposal = is_proposal.iter().any(|part| message.contains(part));
            let is_plain = !message.contains("(..)") && !message.ends_with('.');
            assert!(is_proposal && is_plain, "{problem}");
            let place = match (problem.line(), problem.column()) {
                (Some(line), Some(column)) => format!("{line}:{column}: "),
                (None, None) => String::new(),
                other => panic!("{other:?}"),
            };
            let inside = match problem.path() {
                "" => String::new(),
                path => format!("{path}: "),
            };
            let printed = format!("{place}{inside}{message} ({code})");
            assert_eq!(problem.to_string(), printed);
        }
    }
}

/// Each code that only files have, but those of files that no text of the table is.
#[test]
fn every_code_of_a_file_has_a_bad_file() {
    let page = fs::read_to_string("../../docs/errors.md").expect("the page");
    let files = page.split("## ").find(|part| part.starts_with("Files"));
    let rows = files.expect("its table").lines();
    let code = |row: &str| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned());
    let known: BTreeSet<String> = rows.filter_map(code).collect();
    let mut found = BTreeSet::new();
    for [_, text, _] in cases() {
        let errors = errors(&text);
        let codes = errors.problems().iter().map(|problem| problem.code());
        found.extend(codes.map(str::to_owned));
    }
    for code in &found {
        assert!(page.contains(&format!("\n| `{code}` |")), "{code}");
    }
    // `parser.rs` has the first three. No feature is off in this build, and nothing is reloaded here.
    let elsewhere = "file-unreadable file-not-utf8 file-too-large feature-off not-reloadable \
                     check-panicked";
    found.extend(elsewhere.split(' ').map(str::to_owned));
    let missing: Vec<_> = known.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
