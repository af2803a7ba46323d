//! The files of these tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the TOML files of a folder beside this one, or of the table `bad.toml`, in the order of
/// their names.
pub(crate) fn toml_files(folder: &str) -> Vec<PathBuf> {
    if folder == "bad" {
        return crate::bad::files();
    }
    let folder = Path::new("tests/config").join(folder);
    let entries = fs::read_dir(&folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    let mut paths: Vec<_> = paths.filter(is_toml).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}", folder.display());
    paths
}
