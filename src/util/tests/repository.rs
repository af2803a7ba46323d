//! Files of the repository that tests compare the code with.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns a file of the repository. `None` in the published crate, which has only what its users
/// need.
pub(crate) fn read(path: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo adds this file to what it publishes.
    if root.join("Cargo.toml.orig").exists() {
        return None;
    }
    let text = fs::read_to_string(root.join(path));
    Some(text.unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Returns the texts of the library's files without tests. `None` in the published crate.
pub(crate) fn sources() -> Option<Vec<String>> {
    read("ARCHITECTURE.md")?;
    let mut texts = Vec::new();
    let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.file_stem().and_then(|name| name.to_str()) {
                Some("tests") => {}
                _ if path.is_dir() => folders.push(path),
                _ => texts.extend(fs::read_to_string(path)),
            }
        }
    }
    Some(texts)
}
