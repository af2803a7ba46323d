//! Limits from a file that change while requests are served.

mod buckets;
mod control;
mod numbers;
mod storm;
mod watching;

use tower_throttle_config::{Changes, Config, Limits, Readers};

use crate::support::prelude::*;
use crate::support::web::Answer;

/// Builds the limits of a text.
fn limits_of(text: &str) -> Limits {
    limits_with(text, Readers::new())
}

fn limits_with(text: &str, readers: Readers) -> Limits {
    let config = Config::from_toml(text).unwrap_or_else(|errors| panic!("{errors}"));
    let built = config.readers(readers).build();
    built.unwrap_or_else(|errors| panic!("{errors}"))
}

fn replace(limits: &Limits, text: &str) -> Changes {
    let config = Config::from_toml(text).unwrap_or_else(|errors| panic!("{errors}"));
    let changes = limits.replace(config);
    changes.unwrap_or_else(|errors| panic!("{errors}"))
}

/// A file of one policy that all callers share.
fn policy(name: &str, quota: &str) -> String {
    format!("version = 1\n[[policy]]\nname = {name:?}\nquota = {quota:?}\nshared = true\n")
}

fn ask_plainly(layer: &RateLimitLayer) -> Answer {
    ask(layer, plain())
}

/// Returns a parameter of a header field.
fn parameter(answer: &Answer, field: &str, name: &str) -> String {
    let text = answer.field(field).unwrap_or_else(|| panic!("no {field}"));
    let found = text
        .split(';')
        .find_map(|part| part.strip_prefix(&format!("{name}=")));
    found
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}
