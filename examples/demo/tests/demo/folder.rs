//! Files of limits for one demo.

use std::{env, fs, path::PathBuf, process};

use crate::{process::new_caller, support::RedisServer};

/// A folder for a file, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Creates a folder with the file, in which buckets take hours to refill: what an answer says
    /// does not depend on how fast the machine is. They are in memory, or in this server.
    pub(crate) fn with_slow_limits(redis: Option<&RedisServer>) -> Self {
        let mut text = include_str!("../../limits.toml").to_owned();
        let store = redis.map(|redis| format!("redis = {:?}\ntimeout = \"20s\"", redis.url()));
        let store = store.unwrap_or_else(|| "memory = true".to_owned());
        for (from, to) in [
            ("per second", "per hour"),
            ("per minute", "per hour"),
            ("10 seconds", "1 hour"),
            ("memory = true", &store),
        ] {
            assert!(text.contains(from), "{from:?} is not in the file");
            text = text.replace(from, to);
        }
        let folder = Self::new();
        fs::write(folder.file(), text).expect("it is written");
        folder
    }

    pub(crate) fn new() -> Self {
        let name = format!("tower-throttle-demo-{}-{}", process::id(), new_caller());
        let folder = Self(env::temp_dir().join(name));
        fs::create_dir(&folder.0).expect("a folder");
        folder
    }

    pub(crate) fn file(&self) -> String {
        let file = self.0.join("limits.toml");
        file.into_os_string().into_string().expect("UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
