//! Pages of the repository that tests compare the code with.

use std::{fs, path::Path};

/// Returns a page of the repository. `None` in the published crate, which has only what its users
/// need.
pub(crate) fn read(path: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo adds this file to what it publishes.
    if root.join("Cargo.toml.orig").exists() {
        return None;
    }
    let text = fs::read_to_string(root.join("../..").join(path));
    Some(text.unwrap_or_else(|error| panic!("{path}: {error}")))
}
