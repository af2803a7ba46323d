//! Reading files that anyone may have put in place of the right ones.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// Opens a file that has an end, and at most this many bytes of it. A pipe or a device may have none.
pub(crate) fn open(path: &Path, most: u64) -> io::Result<io::Take<File>> {
    match fs::metadata(path)?.is_file() {
        true => Ok(File::open(path)?.take(most)),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Reads a file, and at most this many bytes of it.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, most)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
