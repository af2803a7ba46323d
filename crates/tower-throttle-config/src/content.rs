//! The files of a configuration, as they are at one time.

use std::{
    any::Any,
    path::{Path, PathBuf},
    sync::Arc,
};

use blake3::{Hash, Hasher};

use super::{Config, ConfigErrors, MAX_BYTES, problem::Code};
use crate::file;

/// The most bytes of a file of lists: those of `Lists::from_file`.
const MAX_LIST_BYTES: u64 = 64 << 20;

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
    /// Of the file itself, without the file of lists.
    pub(super) main_hash: Hash,
    /// Other content, or another failure, has another hash.
    pub(super) hash: Hash,
}

impl Files {
    pub(super) const fn new(path: Arc<Path>) -> Self {
        Self { path, lists: None }
    }

    /// Reads the files as they are now.
    pub(super) fn read(&mut self) -> Content {
        // One byte more shows that it is too large.
        let main = file::read(&self.path, MAX_BYTES as u64 + 1);
        let main = main.map_err(|error| error.to_string());
        let main_hash = match &main {
            Ok(bytes) => blake3::hash(bytes),
            Err(error) => blake3::hash(error.as_bytes()),
        };
        let mut hasher = Hasher::new();
        hasher.update(main_hash.as_bytes());
        if let Some(lists) = main.as_ref().ok().and_then(|bytes| self.lists_of(bytes)) {
            let opened = file::open(&lists, MAX_LIST_BYTES + 1);
            let hashed = opened.map(|file| hasher.update_reader(file));
            if let Ok(Err(error)) | Err(error) = hashed.map(|hashed| hashed.map(drop)) {
                hasher.update(error.to_string().as_bytes());
            }
        }
        Content {
            path: Arc::clone(&self.path),
            main,
            main_hash,
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
            Err(error) => Err(super::unreadable(&self.path, error)),
        }
    }

    /// Makes an error of a panic while this content was checked.
    pub(super) fn panicked(&self, panic: &(dyn Any + Send)) -> ConfigErrors {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("without a message");
        let message = format!("code of the application panicked while this was checked: {text}");
        super::alone(Some(&self.path), Code::Panicked, message)
    }
}
