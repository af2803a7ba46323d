//! Each bad file of `tests/config/bad`, with its exact messages beside it.

use std::{collections::BTreeSet, env, fs, path::Path};

use tower_throttle::{
    config::{Config, ConfigErrors, Readers},
    key,
};

use crate::files::{name, toml_files};

/// Writes the messages, where they are meant to change: `TT_WRITE=1 cargo test ..`.
const WRITE: &str = "TT_WRITE";

pub(crate) fn errors(path: &Path) -> ConfigErrors {
    let readers = Readers::new()
        .key("tenant", key::global())
        .quota("plan", |_| None);
    let built = Config::from_path(path).and_then(|config| config.readers(readers).build());
    match built {
        Ok(_) => panic!("{} has no mistake", path.display()),
        Err(errors) => errors,
    }
}

#[test]
fn every_bad_file_has_its_exact_messages() {
    let files = toml_files("bad");
    assert!(files.len() >= 60, "{} files", files.len());
    let mut wrong = String::new();
    for path in &files {
        let expected = path.with_extension("txt");
        let found = format!("{}\n", errors(path)).replace("tests/config/bad/", "");
        if env::var_os(WRITE).is_some() {
            fs::write(&expected, &found).expect("the messages");
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        if found != expected {
            wrong.push_str(&format!("expected:\n{expected}found:\n{found}\n"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}with {WRITE}=1 these are the messages"
    );
}

#[test]
fn every_message_says_what_to_change() {
    for path in toml_files("bad") {
        for problem in errors(&path).problems() {
            let message = problem.message();
            let is_proposal = ["; ", "expected ", "this is not TOML: "];
            assert!(
                is_proposal.iter().any(|part| message.contains(part)),
                "{problem}"
            );
            assert!(!message.contains("(..)"), "{problem}");
            assert!(!message.ends_with('.'), "{problem}");
        }
    }
}

#[test]
fn the_getters_of_a_problem_are_what_is_printed() {
    for path in toml_files("bad") {
        for problem in errors(&path).problems() {
            let place = match (problem.line(), problem.column()) {
                (Some(line), Some(column)) => format!("{line}:{column}:"),
                (None, None) => String::new(),
                other => panic!("{other:?}"),
            };
            let inside = match problem.path() {
                "" => String::new(),
                path => format!("{path}: "),
            };
            let file = problem.file().expect("a file");
            let (message, code) = (problem.message(), problem.code());
            let printed = format!("{file}:{place} {inside}{message} ({code})");
            assert_eq!(problem.to_string(), printed);
        }
    }
}

/// Each code that only files have, but those of files that are no file of this folder.
#[test]
fn every_code_of_a_file_has_a_bad_file() {
    let page = fs::read_to_string("docs/errors.md").expect("the page");
    let page = page.split("## ").find(|part| part.starts_with("Files"));
    let rows = page.expect("its table").lines();
    let known: BTreeSet<String> = rows
        .filter_map(|row| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect();
    let mut found: BTreeSet<String> = toml_files("bad")
        .iter()
        .flat_map(|path| errors(path).problems().to_vec())
        .map(|problem| problem.code().to_owned())
        .collect();
    // `parser.rs` and `formats.rs` have these.
    let elsewhere = ["file-unreadable", "file-too-large", "duplicate-field"];
    found.extend(elsewhere.map(str::to_owned));
    // No feature is off in this build, and nothing is reloaded here.
    found.extend(["feature-off", "not-reloadable", "check-panicked"].map(str::to_owned));
    let missing: Vec<_> = known.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `main` prints the error that it returns by `Debug`.
#[test]
fn errors_returned_from_main_are_the_messages() {
    for path in toml_files("bad") {
        let errors = errors(&path);
        assert_eq!(format!("{errors:?}"), format!("\n{errors}"));
    }
}

#[test]
fn all_messages_of_a_file_name_it() {
    for path in toml_files("bad") {
        let messages = fs::read_to_string(path.with_extension("txt")).expect("messages");
        let start = format!("{}.toml:", name(&path));
        assert!(
            messages.lines().all(|line| line.starts_with(&start)),
            "{messages}"
        );
    }
}
