//! A file does what the same words do in code.

mod examples;
// Some fields need these features.
#[cfg(all(feature = "axum", feature = "redis"))]
mod fields;
mod keys;
mod world;

use super::Builders;
use crate::Config;

/// Reads a text without its version.
fn read(text: &str) -> Config {
    let config = Config::from_toml(&format!("version = 1\n{text}"));
    config.unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn builders(config: &Config) -> Builders {
    Builders::read(config).unwrap_or_else(|errors| panic!("{errors}"))
}
