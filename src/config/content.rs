//! The files of a configuration, as they are at one time.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use blake3::{Hash, Hasher};

use super::{Config, ConfigErrors, MAX_BYTES, problem::Code};

/// Reads a configuration file, and the file of lists that it names.
///
/// Files are read in full. Their times say less: an editor may keep them, and a network file
/// system may be late with them. No event says when a file has changed, as events are lost where a
/// path is a link, or a mount.
#[derive(Debug)]
pub(super) struct Files {
    path: Arc<Path>,
    /// The content of the file that was read last, and the file of lists that it names.
    lists: Option<(Hash, Option<PathBuf>)>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Content {
    path: Arc<Path>,
    main: Result<Vec<u8>, String>,
    /// Other content, or another failure, has another hash.
    pub(super) hash: Hash,
}

impl Files {
    pub(super) const fn new(path: Arc<Path>) -> Self {
        Self { path, lists: None }
    }

    /// Reads the files as they are now.
    pub(super) fn read(&mut self) -> Content {
        let main = read(&self.path).map_err(|error| error.to_string());
        let mut hasher = Hasher::new();
        match &main {
            Ok(bytes) => {
                hasher.update(blake3::hash(bytes).as_bytes());
                if let Some(lists) = self.lists_of(bytes) {
                    let hashed = regular(&lists).map(|file| hasher.update_reader(file));
                    if let Ok(Err(error)) | Err(error) = hashed.map(|hashed| hashed.map(drop)) {
                        hasher.update(error.to_string().as_bytes());
                    }
                }
            }
            Err(error) => {
                hasher.update(error.as_bytes());
            }
        }
        Content {
            path: Arc::clone(&self.path),
            main,
            hash: hasher.finalize(),
        }
    }

    /// Returns the file of lists that this content names.
    fn lists_of(&mut self, bytes: &[u8]) -> Option<PathBuf> {
        let hash = blake3::hash(bytes);
        if let Some((known, lists)) = &self.lists {
            if *known == hash {
                return lists.clone();
            }
        }
        let config = Config::from_bytes(&self.path, bytes);
        let lists = config.ok().and_then(|config| config.file_of_lists());
        self.lists = Some((hash, lists.clone()));
        lists
    }
}

impl Content {
    /// Reads what the content says.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in its form, or why the file cannot be read.
    pub(super) fn config(&self) -> Result<Config, ConfigErrors> {
        match &self.main {
            Ok(bytes) => Config::from_bytes(&self.path, bytes),
            Err(error) => {
                let message = format!("cannot read the file ({error}); make it readable");
                Err(super::alone(Some(&self.path), Code::Unreadable, message))
            }
        }
    }
}

/// Reads a file, and no more of it than shows that it is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_BYTES as u64 + 1;
    regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that has content. A pipe may never end.
fn regular(path: &Path) -> io::Result<fs::File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    fs::File::open(path)
}
