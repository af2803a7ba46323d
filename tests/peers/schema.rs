//! The JSON Schema and the check agree on all files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tower_throttle_config::Config;

/// Codes of mistakes that no schema sees: they are in the meaning of a text, or between fields. So
/// are all that builders report, but one.
const MEANING: &str = "bad-pattern bad-variable credentials-file duplicate-field duration-text feature-off \
    file-too-deep unknown-policy unused-policy unknown-reader unknown-tier unset-variable";
/// A file whose mistake is between tables, and has a code of form.
const BETWEEN_TABLES: &str = "key_client_ip_missing";
/// What a builder reports, and the schema as well: `policy` with nothing in it.
const OF_FORM: &str = "no-policies";
/// Of these, the schema sees some.
const PARTLY: &str = "duration-text";

fn schema() -> Value {
    serde_json::from_str(&Config::json_schema()).expect("JSON")
}

fn path(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text")
}

#[test]
fn the_schema_is_a_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn the_schema_accepts_all_good_files() {
    let schema = jsonschema::validator_for(&schema()).expect("a schema");
    let mut seen = 0;
    for entry in
        fs::read_dir(path("crates/tower-throttle-config/tests/config/good")).expect("a folder")
    {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        let file: Value = toml::from_str(&read(&path)).expect("TOML");
        let errors: Vec<_> = schema
            .iter_errors(&file)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
        seen += 1;
    }
    assert!(seen > 3, "{seen}");
}

/// Returns the codes at the ends of messages.
fn codes(messages: &str) -> Vec<&str> {
    messages
        .lines()
        .filter_map(|line| Some(line.strip_suffix(')')?.rsplit_once('(')?.1))
        .collect()
}

#[test]
fn the_schema_rejects_all_bad_files_but_those_whose_mistake_is_one_of_meaning() {
    let schema = jsonschema::validator_for(&schema()).expect("a schema");
    let page = read(&path("docs/errors.md"));
    let (builders, _) = page
        .split_once("\n## Files")
        .expect("the table of builders");
    let table: Value = toml::from_str(&read(&path(
        "crates/tower-throttle-config/tests/config/bad.toml",
    )))
    .expect("TOML");
    let mut seen = 0;
    for case in table["case"].as_array().expect("cases") {
        let [name, text, messages] =
            ["name", "text", "expected"].map(|field| case[field].as_str().expect(field));
        let Ok(file) = toml::from_str::<Value>(text) else {
            continue;
        };
        let codes = codes(messages);
        assert!(!codes.is_empty(), "{name}: {messages}");
        let mut is_of_meaning = codes.iter().all(|code| {
            let is_of_builder = builders.contains(&format!("\n| `{code}` |"));
            MEANING.split(' ').any(|it| it == *code) || is_of_builder && *code != OF_FORM
        });
        is_of_meaning |= name == BETWEEN_TABLES;
        if !codes.contains(&PARTLY) || !is_of_meaning {
            let is_accepted = schema.is_valid(&file);
            assert_eq!(is_accepted, is_of_meaning, "{name}: {messages}");
        }
        seen += 1;
    }
    assert!(seen >= 50, "{seen}");
}
