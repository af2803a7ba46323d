//! A file can express all settings of a builder.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    schema::{self, Form},
    tests::repository,
};

/// The public API as text.
const API: &str = "public-api.txt";

/// The types and modules whose functions a file has to reach.
#[rustfmt::skip]
const BUILDERS: &[&str] = &[
    "key", "key::ClientIp", "settle", "settle::CostHeader", "LimiterBuilder", "Lists",
    "MemoryStoreBuilder", "OnStoreFailure", "Policy", "RateLimitLayerBuilder",
    "RedisStoreBuilder",
];

/// The settings that a file does not have, and why.
#[rustfmt::skip]
const ELSEWHERE: &[(&str, &str)] = &[
    ("key::ClientIp::or", "a list of keys"),
    ("key::ClientIp::trusted_ranges", "returns a setting"),
    ("key::extension", "reads a type of the application: a reader"),
    ("LimiterBuilder::build", "after the file was read"),
    ("LimiterBuilder::control", "the limits of a file follow the document of their store"),
    ("RateLimitLayerBuilder::control", "the limits of a file follow the document of their store"),
    ("Lists::new", "every table `[lists]` is new"),
    ("Lists::from_text", "the other fields of `[lists]` say the same"),
    ("Lists::for_policies", "each layer of a file has the entries of its policies"),
    ("Lists::policies", "while the application runs"),
    ("Lists::replace", "while the application runs"),
    ("Lists::find_ip", "while the application runs"),
    ("Lists::find_key", "while the application runs"),
    ("MemoryStoreBuilder::build", "after the file was read"),
    ("RateLimitLayerBuilder::build", "after the file was read"),
    ("Policy::with_quota", "a policy of a file has its quota"),
    ("RateLimitLayerBuilder::responder", "a layer has it, too"),
    ("RedisStoreBuilder::client", "a client of the application: a store as a reader"),
    ("RedisStoreBuilder::simulated", "a simulation of a test: a store as a reader"),
];

/// Methods that these types have from traits.
#[rustfmt::skip]
const OF_TRAITS: &[&str] = &[
    "address", "clone", "default", "eq", "extract", "fmt", "from", "from_str", "hash",
    "hidden_field", "is_trusted_proxy", "settle", "source", "validate",
];

/// Returns all functions of the public API, without what comes before and after their paths.
fn functions(api: &str) -> BTreeSet<&str> {
    let lines = api.lines();
    let paths = lines.filter_map(|line| {
        let (_, path) = line.split_once("fn tower_throttle::")?;
        let path = path.split(['(', '<']).next()?;
        // What is left of a generic type is a type.
        let is_function = path.rsplit(':').next()?.starts_with(char::is_lowercase);
        is_function.then_some(path)
    });
    paths.collect()
}

/// The counterparts of fields in code, by `table.field`.
pub(crate) fn code() -> BTreeMap<&'static str, Vec<&'static str>> {
    let lines = include_str!("code.txt").lines();
    let fields = lines.map(|line| {
        let (field, code) = line.split_once(" = ").expect("a field");
        (field, code.split(", ").collect())
    });
    fields.collect()
}

/// Returns `key_table` for `KeyTable`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Returns all tables of the file, by their names.
pub(crate) fn tables() -> Vec<(String, &'static Value)> {
    let definitions = schema::root()["$defs"].as_object().expect("definitions");
    let definitions = definitions
        .iter()
        .map(|(name, table)| (snake_case(name), table));
    let all = std::iter::once(("file".to_owned(), schema::root())).chain(definitions);
    all.filter(|(_, table)| table.get("properties").is_some())
        .collect()
}

/// Returns the fields of a table, and their schemas.
pub(crate) fn fields(
    table: &'static Value,
) -> impl Iterator<Item = (&'static str, &'static Value)> {
    let fields = table["properties"].as_object().expect("fields").iter();
    fields.map(|(name, field)| (&**name, field))
}

/// Returns the words of all fields, without what separates them from an argument.
fn words() -> BTreeSet<&'static str> {
    let fields = tables().into_iter().flat_map(|(_, table)| fields(table));
    let forms = fields.flat_map(|(_, field)| Form::all(field));
    let words = forms.filter_map(|form| form.word());
    let argument = |word: &'static str| word.trim_end_matches("NAME").trim_end_matches('N');
    let words = words.map(argument);
    words
        .map(|word| word.trim_end_matches([':', ' ']))
        .collect()
}

#[test]
fn a_file_says_whatever_a_builder_says() {
    let Some(api) = repository::read(API) else {
        return;
    };
    let said: BTreeSet<_> = code().into_values().flatten().collect();
    let words = words();
    let missing: Vec<_> = functions(&api)
        .into_iter()
        .filter(|path| {
            let Some((owner, method)) = path.rsplit_once("::") else {
                return false;
            };
            let as_word = match method {
                "matched_route" => "route",
                "share_of" => "share of",
                method => method,
            };
            let is_word = ["key", "settle", "OnStoreFailure"].contains(&owner);
            let is_elsewhere = ELSEWHERE.iter().any(|(known, _)| known == path);
            let is_said = said.contains(path) || is_elsewhere || is_word && words.contains(as_word);
            BUILDERS.contains(&owner) && !OF_TRAITS.contains(&method) && !is_said
        })
        .collect();
    assert!(missing.is_empty(), "no field says {missing:?}");
}

#[test]
fn a_file_has_a_word_for_each_variant() {
    let Some(api) = repository::read(API) else {
        return;
    };
    let words = words();
    let mut variants = 0;
    let owners = "GrpcDenials HeaderFormat OnMissingKey OnStoreFailure".split(' ');
    for line in api.lines() {
        for owner in owners.clone() {
            let start = format!("pub tower_throttle::{owner}::");
            let Some(variant) = line.strip_prefix(&start) else {
                continue;
            };
            if variant.contains([':', '(', ' ']) {
                continue; // A field of a variant.
            }
            let word = snake_case(variant);
            variants += 1;
            assert!(words.contains(&*word), "{line}: {word}");
        }
    }
    assert!(variants > 14, "{variants}");
}

#[test]
fn what_the_table_and_the_exceptions_name_is_public() {
    let Some(api) = repository::read(API) else {
        return;
    };
    let functions = functions(&api);
    let exceptions = ELSEWHERE.iter().map(|(path, _)| *path);
    for path in code().into_values().flatten().chain(exceptions) {
        assert!(functions.contains(path), "{path}");
    }
    let known: BTreeSet<_> = tables()
        .into_iter()
        .flat_map(|(table, schema)| {
            fields(schema).map(move |(field, _)| format!("{table}.{field}"))
        })
        .collect();
    for field in code().into_keys() {
        assert!(known.contains(field), "{field}");
    }
}

#[test]
fn every_field_is_described_and_no_needed_one_has_a_default() {
    for (name, table) in tables() {
        let required = table["required"].as_array().cloned().unwrap_or_default();
        for (field, schema) in fields(table) {
            let about = schema["description"].as_str().expect(field);
            assert!(about.ends_with('.'), "{name}.{field}");
            let has_default = about.contains("Default: ");
            let is_required = required.iter().any(|required| required == field);
            assert!(!(has_default && is_required), "{name}.{field}");
        }
    }
}
