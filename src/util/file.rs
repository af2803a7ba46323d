//! Reading files that anyone may have put in place of the right ones.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// Reads a file, and at most this many bytes of it. A pipe or a device may have no end.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
