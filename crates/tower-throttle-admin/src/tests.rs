//! Pages of the repository that tests compare the code with, and samples that are run as tests.

use std::{fs, path::Path};

/// Returns a page of the repository. `None` in the published crate, which has only what its users
/// need.
pub(crate) fn read_page(path: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo adds this file to what it publishes.
    if root.join("Cargo.toml.orig").exists() {
        return None;
    }
    let text = fs::read_to_string(root.join("../..").join(path));
    Some(text.unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// The samples of the README and the guides, compiled and run as tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/admin.md")]
    mod admin {}
    #[doc = include_str!("../../../docs/admin-security.md")]
    mod admin_security {}
}
