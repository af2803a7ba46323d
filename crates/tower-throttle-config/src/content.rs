//! The files of a configuration, as they are at one time.

use std::{any::Any, path::Path, sync::Arc};

use blake3::{Hash, Hasher};

use super::{Config, ConfigErrors, MAX_BYTES};
use crate::file;

/// The most bytes of a file of lists: those of `Lists::from_file`.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The content that was read, or the failure.
#[derive(Debug)]
pub(super) struct Content {
    path: Arc<Path>,
    main: Result<Vec<u8>, String>,
    /// Of the file itself, without the file of lists.
    pub(super) main_hash: Hash,
    /// Other content, or another failure, has another hash.
    pub(super) hash: Hash,
}

impl Content {
    /// Reads a configuration file, and the file of lists that it names, as they are now.
    ///
    /// Files are read in full. Their times are not reliable: an editor may keep them, and a network
    /// file system may update them late. Events of the file system are not reliable either: they
    /// are lost where a path is a link, or a mount.
    pub(super) fn read(path: &Arc<Path>) -> Self {
        // One byte more shows that it is too large.
        let main = file::read(path, MAX_BYTES as u64 + 1).map_err(|error| error.to_string());
        let bytes = main.as_deref().unwrap_or_else(|error| error.as_bytes());
        let main_hash = blake3::hash(bytes);
        let mut content = Self {
            path: Arc::clone(path),
            main,
            main_hash,
            hash: main_hash,
        };
        let config = content.config().ok();
        if let Some(lists) = config.and_then(|config| config.file_of_lists()) {
            let mut hasher = Hasher::new();
            hasher.update(main_hash.as_bytes());
            let opened = file::open(&lists, MAX_LIST_BYTES + 1);
            if let Err(error) = opened.and_then(|file| hasher.update_reader(file).map(drop)) {
                hasher.update(error.to_string().as_bytes());
            }
            content.hash = hasher.finalize();
        }
        content
    }

    /// Parses the content.
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
        ConfigErrors::alone(Some(&self.path), None, "check-panicked", message)
    }
}
