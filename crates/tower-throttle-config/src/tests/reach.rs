//! Whatever a builder can say, a file can say.

use std::collections::BTreeSet;

use crate::{
    descriptor::FILE,
    form::{Form, Table},
    tests::repository,
    word::Word,
};

/// The public API as text.
const API: &str = "public-api.txt";

/// The types and modules whose functions a file has to reach.
const BUILDERS: &[&str] = &[
    "key",
    "key::ClientIp",
    "key::Peer",
    "settle",
    "settle::BodyBytes",
    "settle::CostHeader",
    "settle::Failures",
    "settle::Statuses",
    "LimiterBuilder",
    "Lists",
    "MemoryStoreBuilder",
    "OnStoreFailure",
    "Percent",
    "Policy",
    "RateLimitLayerBuilder",
    "RedisStoreBuilder",
];

/// What a file does not say, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("key::ClientIp::or", "a list of keys"),
    ("key::Peer::or", "a list of keys"),
    (
        "key::extension",
        "reads a type of the application: a reader",
    ),
    ("LimiterBuilder::build", "after the file was read"),
    (
        "LimiterBuilder::control",
        "the limits of a file follow the document of their store",
    ),
    (
        "RateLimitLayerBuilder::control",
        "the limits of a file follow the document of their store",
    ),
    ("Lists::new", "every table `[lists]` is new"),
    (
        "Lists::from_text",
        "the other fields of `[lists]` say the same",
    ),
    ("Lists::replace", "while the application runs"),
    ("Lists::find_ip", "while the application runs"),
    ("Lists::find_key", "while the application runs"),
    ("MemoryStoreBuilder::build", "after the file was read"),
    ("RateLimitLayerBuilder::build", "after the file was read"),
    ("Policy::with_quota", "a policy of a file has its quota"),
    ("RateLimitLayerBuilder::responder", "a layer has it, too"),
    (
        "RedisStoreBuilder::client",
        "a client of the application: a store as a reader",
    ),
    (
        "RedisStoreBuilder::simulated",
        "a simulation of a test: a store as a reader",
    ),
];

/// Methods that these types have from traits.
const OF_TRAITS: &[&str] = &[
    "address",
    "clone",
    "default",
    "eq",
    "extract",
    "fmt",
    "from",
    "from_str",
    "hash",
    "hidden_field",
    "is_trusted_proxy",
    "settle",
    "source",
    "validate",
];

/// Returns all functions of the public API, without what comes before and after their paths.
fn functions(api: &str) -> BTreeSet<&str> {
    let lines = api.lines();
    let paths = lines.filter_map(|line| {
        let (_, path) = line.split_once("fn tower_throttle::")?;
        let path = path.split(['(', '<']).next()?;
        // What is left of `key::Or<A, B>::or` is a type.
        let is_function = path.rsplit(':').next()?.starts_with(char::is_lowercase);
        is_function.then_some(path)
    });
    paths.collect()
}

/// Collects what the fields of a table say in code, and the words that they take.
fn collect(table: &'static Table, seen: &mut Seen) {
    if seen.tables.insert(table.name) {
        for known in table.fields {
            seen.code.extend(known.code);
            collect_form(known.form, seen);
        }
    }
}

fn collect_form(form: &'static Form, seen: &mut Seen) {
    match form {
        Form::Words(words) => seen.words.extend(words.iter()),
        Form::Table(table) => collect(table, seen),
        Form::Map { form, .. } | Form::Tables(form) => collect_form(form, seen),
        Form::Either(forms) => {
            for form in *forms {
                collect_form(form, seen);
            }
        }
        // Only keys contain lists of themselves.
        _ => {}
    }
}

#[derive(Default)]
struct Seen {
    tables: BTreeSet<&'static str>,
    code: BTreeSet<&'static str>,
    words: Vec<&'static Word>,
}

impl Seen {
    fn of_file() -> Self {
        let mut seen = Self::default();
        collect(&FILE, &mut seen);
        seen
    }

    /// Returns the words without what separates them from an argument.
    fn words(&self) -> BTreeSet<&str> {
        let words = self.words.iter().map(|word| word.text);
        words
            .map(|word| word.trim_end_matches([':', ' ']))
            .collect()
    }
}

#[test]
fn a_file_says_whatever_a_builder_says() {
    let Some(api) = repository::read(API) else {
        return;
    };
    let seen = Seen::of_file();
    let words = seen.words();
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
            let is_said =
                seen.code.contains(path) || is_elsewhere || is_word && words.contains(as_word);
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
    let words = Seen::of_file();
    let words = words.words();
    let mut variants = 0;
    for line in api.lines() {
        for owner in [
            "GrpcDenials",
            "HeaderFormat",
            "OnMissingKey",
            "OnStoreFailure",
        ] {
            let start = format!("pub tower_throttle::{owner}::");
            let Some(variant) = line.strip_prefix(&start) else {
                continue;
            };
            if variant.contains([':', '(', ' ']) {
                continue; // A field of a variant.
            }
            let mut word = String::new();
            for letter in variant.chars() {
                if letter.is_ascii_uppercase() && !word.is_empty() {
                    word.push('_');
                }
                word.extend(letter.to_lowercase());
            }
            variants += 1;
            assert!(words.contains(&*word), "{line}: {word}");
        }
    }
    assert!(variants > 14, "{variants}");
}

#[test]
fn what_the_descriptor_and_the_exceptions_name_is_public() {
    let Some(api) = repository::read(API) else {
        return;
    };
    let functions = functions(&api);
    let seen = Seen::of_file();
    let exceptions = ELSEWHERE.iter().map(|(path, _)| *path);
    for path in seen.code.into_iter().chain(exceptions) {
        assert!(functions.contains(path), "{path}");
    }
}

#[test]
fn every_field_is_described_and_no_needed_one_has_a_default() {
    fn check(table: &'static Table, seen: &mut BTreeSet<*const Table>) {
        if !seen.insert(table) {
            return;
        }
        for known in table.fields {
            let place = format!("{}.{}", table.name, known.name);
            assert!(known.about.ends_with('.'), "{place}");
            let is_set = known.default.is_empty();
            assert!(
                is_set || !known.is_needed(),
                "{place} has a default that never holds"
            );
            inner(known.form, seen);
        }
    }
    fn inner(form: &'static Form, seen: &mut BTreeSet<*const Table>) {
        match form {
            Form::Table(table) => check(table, seen),
            Form::Map { form, .. } | Form::Tables(form) => inner(form, seen),
            Form::Either(forms) => forms.iter().for_each(|form| inner(form, seen)),
            _ => {}
        }
    }
    check(&FILE, &mut BTreeSet::new());
}
