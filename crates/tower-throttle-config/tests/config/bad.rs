//! Each bad file of the table `bad.toml`, with its exact messages beside it.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde_json::Value;
use tower_throttle::key;
use tower_throttle_config::{Config, ConfigErrors, Readers};

use crate::files::toml_files;

const TABLE: &str = "tests/config/bad.toml";
/// Writes the messages, where they are meant to change: `TT_WRITE=1 cargo test ..`.
const WRITE: &str = "TT_WRITE";

struct Case {
    name: String,
    text: String,
    expected: String,
}

fn table() -> String {
    fs::read_to_string(TABLE).expect("the table")
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let table: Value = toml::from_str(&table()).expect("TOML");
    let text = |case: &Value, field: &str| case[field].as_str().expect(field).to_owned();
    let cases = table["case"].as_array().expect("cases").iter();
    let cases = cases.map(|case| Case {
        name: text(case, "name"),
        text: text(case, "text"),
        // A new case has none yet.
        expected: case["expected"].as_str().unwrap_or_default().to_owned(),
    });
    cases.collect()
});

/// The texts of the cases as files, because messages begin with the name of a file.
static FILES: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let folder = folder();
    fs::create_dir_all(folder).expect("a folder");
    let file = |case: &Case| {
        let path = folder.join(&case.name).with_extension("toml");
        // Another process may read the same file.
        let next = path.with_extension(std::process::id().to_string());
        fs::write(&next, &case.text).expect("a file");
        fs::rename(next, &path).expect("it is moved");
        path
    };
    CASES.iter().map(file).collect()
});

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/bad-config"))
}

/// Returns the files of the table, in the order of their names.
pub(crate) fn files() -> Vec<PathBuf> {
    FILES.clone()
}

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

fn write_table(messages: &[String]) {
    let former = table();
    let (head, _) = former.split_once("\n[[case]]").expect("a case");
    let mut table = head.to_owned();
    for (case, messages) in CASES.iter().zip(messages) {
        let [name, text] = [Value::from(&*case.name).to_string(), literal(&case.text)];
        let expected = literal(messages);
        table.push_str(&format!(
            "\n[[case]]\nname = {name}\ntext = {text}\nexpected = {expected}\n"
        ));
    }
    fs::write(TABLE, table).expect("the table");
}

#[test]
fn every_bad_file_has_its_exact_messages() {
    let files = toml_files("bad");
    assert!(files.len() >= 60, "{} files", files.len());
    assert!(CASES.is_sorted_by(|one, next| one.name < next.name));
    let folder = format!("{}/", folder().display());
    let messages = |path: &PathBuf| format!("{}\n", errors(path)).replace(&folder, "");
    let found: Vec<String> = files.iter().map(messages).collect();
    if env::var_os(WRITE).is_some() {
        return write_table(&found);
    }
    let mut wrong = String::new();
    for (Case { expected, .. }, found) in CASES.iter().zip(&found) {
        if found != expected {
            wrong.push_str(&format!("expected:\n{expected}found:\n{found}\n"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}with {WRITE}=1 these are the messages"
    );
}

/// Also in the form that `main` prints: an error that it returns is shown by `Debug`.
#[test]
fn every_message_names_its_place_and_what_to_change() {
    for path in toml_files("bad") {
        let errors = errors(&path);
        assert_eq!(format!("{errors:?}"), format!("\n{errors}"));
        for problem in errors.problems() {
            let (message, code) = (problem.message(), problem.code());
            let is_proposal = ["; ", "expected ", "this is not TOML: "];
            assert!(
                is_proposal.iter().any(|part| message.contains(part)),
                "{problem}"
            );
            assert!(!message.contains("(..)"), "{problem}");
            assert!(!message.ends_with('.'), "{problem}");
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
            assert_eq!(file, path.to_str().expect("UTF-8"));
            let printed = format!("{file}:{place} {inside}{message} ({code})");
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
    let known: BTreeSet<String> = rows
        .filter_map(|row| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect();
    let mut found: BTreeSet<String> = toml_files("bad")
        .iter()
        .flat_map(|path| errors(path).problems().to_vec())
        .map(|problem| problem.code().to_owned())
        .collect();
    for code in &found {
        assert!(page.contains(&format!("\n| `{code}` |")), "{code}");
    }
    // `parser.rs` has these.
    let elsewhere = ["file-unreadable", "file-not-utf8", "file-too-large"];
    found.extend(elsewhere.map(str::to_owned));
    // No feature is off in this build, and nothing is reloaded here.
    found.extend(["feature-off", "not-reloadable", "check-panicked"].map(str::to_owned));
    let missing: Vec<_> = known.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
