//! The JSON Schema and the check agree on all files.

use std::{env, fs, path::Path};

use serde_json::Value;
use tower_throttle::config::{Config, ConfigProblem};

use crate::files::{name, toml_files};

/// Codes of mistakes that no schema sees: they are in the meaning of a text, or between fields. So
/// are all that builders report, but one.
const MEANING: &[&str] = &[
    "bad-pattern",
    "bad-variable",
    "duplicate-field",
    "duration-text",
    "feature-off",
    "file-too-deep",
    "unknown-policy",
    "unused-policy",
    "unknown-reader",
    "unknown-tier",
    "unset-variable",
];
/// A file whose mistake is between tables, and has a code of form.
const BETWEEN_TABLES: &str = "key_client_ip_missing";
/// What a builder reports, and the schema as well: `policy` with nothing in it.
const OF_FORM: &str = "no-policies";
/// Of these, the schema sees some.
const PARTLY: &str = "duration-text";

fn schema() -> Value {
    serde_json::from_str(&Config::json_schema()).expect("JSON")
}

/// Reads a file as JSON. `None` if it is no TOML.
fn json(path: &Path) -> Option<Value> {
    toml::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[test]
fn the_schema_in_the_repository_is_the_one_of_the_code() {
    let path = "docs/tower-throttle.schema.json";
    if env::var_os("TT_WRITE").is_some() {
        fs::write(path, Config::json_schema()).expect("the schema");
    }
    let text = fs::read_to_string(path).expect("the schema");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        written == schema(),
        "with TT_WRITE=1, {path} is the schema of the code"
    );
}

#[test]
fn the_schema_is_a_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn the_schema_accepts_all_good_files() {
    let schema = jsonschema::validator_for(&schema()).expect("a schema");
    for path in toml_files("good") {
        let file = json(&path).expect("TOML");
        let errors: Vec<_> = schema
            .iter_errors(&file)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

#[test]
fn the_schema_rejects_all_bad_files_but_those_whose_mistake_is_one_of_meaning() {
    let schema = jsonschema::validator_for(&schema()).expect("a schema");
    let page = fs::read_to_string("docs/errors.md").expect("the page");
    let (builders, _) = page
        .split_once("\n## Files")
        .expect("the table of builders");
    let mut seen = 0;
    for path in toml_files("bad") {
        let Some(file) = json(&path) else { continue };
        let errors = crate::bad::errors(&path);
        let name = name(&path);
        let codes: Vec<_> = errors.problems().iter().map(ConfigProblem::code).collect();
        let mut is_of_meaning = codes.iter().all(|code| {
            let is_of_builder = builders.contains(&format!("\n| `{code}` |"));
            MEANING.contains(code) || is_of_builder && *code != OF_FORM
        });
        is_of_meaning |= name == BETWEEN_TABLES;
        if !codes.contains(&PARTLY) || !is_of_meaning {
            let is_accepted = schema.is_valid(&file);
            assert_eq!(is_accepted, is_of_meaning, "{name}: {errors}");
        }
        seen += 1;
    }
    assert!(seen >= 50, "{seen}");
}
