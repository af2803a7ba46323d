//! Each field of a file changes something, and does the same as the method in code.

use std::collections::BTreeSet;

use super::world::World;
use crate::tests::reach::{fields, tables};

mod of_layers;
mod of_policies;
mod of_requests;
mod of_stores;

/// A field, requests that show a difference, a file with it and without it, and the same in code.
/// In brackets is the effect of the file with the field, and after a bar its effect without.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    fn(&World) -> tower_throttle::RateLimitLayerBuilder,
);

const START: char = '⟦';
const BAR: char = '¦';
const END: char = '⟧';

fn variants(file: &str) -> (String, String) {
    let (start, rest) = file.split_once(START).expect("brackets");
    let (choice, end) = rest.split_once(END).expect("brackets");
    let (with, without) = choice.split_once(BAR).expect("a bar");
    (
        format!("{start}{with}{end}"),
        format!("{start}{without}{end}"),
    )
}

fn check(cases: &[Case]) {
    for (field, requests, file, code) in cases {
        let (with, without) = variants(file);
        let world = World::new();
        let said = world.talk(&world.layer_of_file(&with), requests);
        let world = World::new();
        let layer = code(&world);
        let layer = match file.contains("broken") {
            true => world.broken_layer(layer),
            false => world.layer_of_code(layer),
        };
        assert_eq!(said, world.talk(&layer, requests), "{field}: {with}");
        let world = World::new();
        let other = world.talk(&world.layer_of_file(&without), requests);
        assert_ne!(said, other, "{field} changes nothing: {with}");
    }
}

#[test]
fn each_field_of_a_policy_changes_what_it_says() {
    check(of_policies::CASES);
}

#[test]
fn each_field_that_reads_requests_changes_what_it_says() {
    check(of_requests::CASES);
}

#[test]
fn each_field_of_a_layer_changes_what_it_says() {
    check(of_layers::CASES);
}

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
        .chain(WITHOUT_A_CASE.split(' '))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = fields.difference(&covered).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    let unknown: Vec<_> = covered.difference(&fields).collect();
    assert!(unknown.is_empty(), "no field is called {unknown:?}");
}
