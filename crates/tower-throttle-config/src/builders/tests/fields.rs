//! Each field of a file changes something, and does the same as the method in code.

use std::collections::BTreeSet;

use super::world::{Broken, World};
use crate::tests::reach::{fields, tables};
use tower_throttle::{Policy, RateLimitLayer, RateLimitLayerBuilder, TokenBucket};

mod of_layers;
mod of_policies;
mod of_requests;
mod of_stores;

/// A field, requests that show a difference, a file with it and without it, and the same in code.
/// In brackets is what is in the file with the field, and after a bar what is there without it.
///
/// A file that has no policies is short for more fields of the policy `api`, of the layer `web`,
/// of the store, or of the limiter `jobs`, and what is in the file beside it, after `|`.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    fn(&World) -> RateLimitLayerBuilder,
);

const START: char = '⟦';
const BAR: char = '¦';
const END: char = '⟧';

/// Returns the files with a field and without it.
fn variants(field: &str, file: &str) -> [String; 2] {
    let (start, rest) = file.split_once(START).expect("brackets");
    let (choice, end) = rest.split_once(END).expect("brackets");
    let (with, without) = choice.split_once(BAR).expect("a bar");
    [with, without].map(|choice| whole(field, &format!("{start}{choice}{end}")))
}

/// Completes a file.
fn whole(field: &str, text: &str) -> String {
    let api = "name = 'api', quota = '2 per minute'";
    let mut parts = text.split("| ");
    let fields = parts.next().unwrap_or_default().trim();
    let beside = parts.collect::<Vec<_>>().join("\n");
    let policy = format!("{beside}\npolicy = [{{ {api} }}]\n");
    match field.split('.').next() {
        _ if text.contains("policy = [") => text.to_owned(),
        Some("layer") => format!("{policy}[layer.web]\n{fields}"),
        Some("store") => format!("{policy}[store]\n{fields}"),
        Some("limiter") => format!(
            "policy = [{{ {api} }}, {{ name = 'day', quota = '3 per day' }}]\n\
             lists = {{ allow_keys = {{ api = ['a'] }} }}\nlayer = {{ all = {{}} }}\n[limiter.jobs]\n{fields}"
        ),
        _ if fields.is_empty() => policy,
        _ => format!("{beside}\npolicy = [{{ {api}, {fields} }}]"),
    }
}

fn check(cases: &[Case]) {
    for (field, requests, file, code) in cases {
        let [with, without] = variants(field, file);
        let world = World::new();
        let said = world.talk(&world.layer_of_file(&with), requests);
        let world = World::new();
        let layer = code(&world);
        let layer = match file.contains("broken") {
            true => layer.store(Broken).build().expect("a layer"),
            false => world.layer_of_code(layer),
        };
        assert_eq!(said, world.talk(&layer, requests), "{field}: {with}");
        let world = World::new();
        let other = world.talk(&world.layer_of_file(&without), requests);
        assert_ne!(said, other, "{field} changes nothing: {with}");
    }
}

#[test]
fn each_field_changes_what_it_says() {
    check(of_policies::CASES);
    check(of_requests::CASES);
    check(of_layers::CASES);
}

fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(2))
}

fn one(policy: Policy) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().policy(policy)
}

const THREE: &str = "GET /; GET /; GET /; wait 30; GET /";

/// Their fields are what changes something, and the version is checked before anything is read.
const WITHOUT_A_CASE: &str = "file.version file.store file.client_ip file.peer file.lists \
                              file.policy file.layer file.limiter";

#[test]
fn no_field_is_without_a_case() {
    let of_table =
        |(table, schema)| fields(schema).map(move |(field, _)| format!("{table}.{field}"));
    let fields: BTreeSet<_> = tables().into_iter().flat_map(of_table).collect();
    let cases = [of_policies::CASES, of_requests::CASES, of_layers::CASES];
    let cases = cases.into_iter().flatten().map(|(field, ..)| *field);
    let others = of_stores::CASES.iter().map(|(field, ..)| *field);
    let covered: BTreeSet<_> = cases
        .chain(others)
        .chain(of_stores::TLS)
        .chain(WITHOUT_A_CASE.split(' '))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = fields.difference(&covered).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    let unknown: Vec<_> = covered.difference(&fields).collect();
    assert!(unknown.is_empty(), "no field is called {unknown:?}");
}
