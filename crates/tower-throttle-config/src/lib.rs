//! Limits of [tower-throttle](tower_throttle) from a TOML file: [`Config`].
//!
//! An operator changes a number in a file, and the processes take it while they serve requests:
//!
//! ```
//! use tower_throttle_config::Config;
//!
//! // `Config::from_path("limits.toml")` reads a file, and `Limits::watch` follows its changes.
//! let limits = Config::from_toml(r#"
//!     version = 1
//!
//!     [[policy]]
//!     name = "burst"
//!     quota = "10 per second, burst 20"
//! "#)?.build()?;
//! let layer = limits.layer("default")?; // for `Router::layer`
//! assert_eq!(layer.metrics().requests.total(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All mistakes of a file are reported at once, each with its line, before anything has an effect:
//! see [`ConfigErrors`]. The [guide] explains the file, the [reference] lists every field, and
//! [reload] explains the effects of a change.
//!
//! | word | meaning |
//! |---|---|
//! | version | a content of the file. One is in force, and a wrong one is rejected |
//! | reader | a closure of the application that the file names: [`Readers`] |
//! | problem | one mistake in a file, with its place: [`ConfigProblem`] |
//! | change | what differs between two versions: [`Config::diff`] |
//! | tables | the values of a file, as types |
//!
//! [guide]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/configuration/
//! [reference]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/configuration_reference/
//! [reload]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/reload/
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | stores in Redis |
//! | `axum` | yes | keys and conditions on the routes of axum |
//! | `redis-rustls` | no | `rediss://` |
//! | `metrics-facade` | no | [`Limits::publisher`]: the numbers through the facade `metrics` |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]
// Library code must not panic on any input. Tests may.
#![warn(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

// A file becomes limits in these steps:
//
// 1. `document` reads the text into values. `check` compares them with the `schema`, which is made from
//    the `tables`, and collects all mistakes as `problem::Problem`s. Then serde reads the tables. A
//    `Config` has passed that. If a table has not, the builders read the `remainder` for its mistakes.
// 2. `builders::Builders::read` makes builders of the tables, without a store and without connecting.
//    What a builder reports is a problem at a place:
//
//        let at = at.to("hold_for");                                  // policy "burst".hold_for
//        reading.keep(&at, built);                                    // a `ConfigError`
//        reading.report(&at, "unknown-reader", message);              // one that only files have
//        reading.finish()?;                                           // all of them, if any
//
// 3. `shared::Shared` opens `Builders::store` once, and `live::Live` builds all layers and
//    limiters with it. A later version of the file replaces the one in force.
//
// A new field is a line in `tables/`, and a new mistake that only files have is a row in
// `docs/errors.md`.

mod builders;
mod changes;
mod check;
mod content;
mod document;
mod file;
#[cfg(doctest)]
mod guides;
mod inspected;
mod limits;
mod live;
mod lock;
mod matching;
mod metrics;
mod names;
mod place;
mod poll;
mod problem;
mod readers;
mod reload_error;
mod remainder;
mod schema;
mod shared;
mod status;
mod suggest;
mod tables;
mod telemetry;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
mod text;
mod variables;
mod wording;

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use tower_throttle::key;

use self::{builders::Builders, document::Document, tables::Text};
pub use self::{
    builders::{Explanation, FoundCondition, FoundKey, FoundPolicy},
    changes::{Change, Changes, Effect, FieldChange},
    limits::{Limits, UnknownName},
    names::{Names, ReaderName},
    problem::{ConfigErrors, ConfigProblem},
    readers::Readers,
    reload_error::ReloadError,
    status::{Rejected, Status},
};

/// The layer of a file that has no table for a layer or limiter.
const DEFAULT_LAYER: &str = "default";

/// The size of the largest file.
const MAX_BYTES: usize = 1 << 20;

/// The limits of a configuration file, before they are [built](Self::build).
///
/// ```
/// use tower_throttle_config::Config;
///
/// let config = Config::from_toml(r#"
///     version = 1
///
///     [[policy]]
///     name = "burst"
///     quota = "10 per second, burst 20"
/// "#)?;
/// assert_eq!(config.names().policies, ["burst"]);
/// let layer = config.build()?.layer("default")?; // for `Router::layer`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The form of the file is checked when it is read, and all mistakes are reported at once:
///
/// ```
/// use tower_throttle_config::Config;
///
/// let errors = Config::from_toml(r#"
///     version = 1
///
///     [[policy]]
///     name = "burst"
///     quota = "10 per second, burst 20"
///     keys = "client_ip"
/// "#).unwrap_err();
/// assert_eq!(
///     errors.to_string(),
///     r#"7:5: policy "burst": unknown field "keys"; did you mean "key"? (unknown-field)"#,
/// );
/// ```
#[derive(Clone)]
pub struct Config {
    document: Arc<Document>,
    readers: Readers,
    redis_url: Option<String>,
}

impl Config {
    /// Reads a TOML file of at most 1 MiB. It waits for the file system, so call it at the start, or
    /// where code may block.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the file. If there is one, mistakes in the values of other tables
    /// are returned, too.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let (path, mut bytes) = (path.as_ref(), Vec::new());
        let file = fs::File::open(path);
        let most = MAX_BYTES as u64 + 1;
        match file.and_then(|file| file.take(most).read_to_end(&mut bytes)) {
            Ok(_) => Self::from_bytes(path, &bytes),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    /// Reads the content of a file that was at a path.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the file. If there is one, mistakes in the values of other tables
    /// are returned, too.
    pub(crate) fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ConfigErrors> {
        match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_BYTES => Err(too_large(Some(path))),
            Ok(text) => Self::read(text, Some(path)),
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let before = String::from_utf8_lossy(before);
                let before = before.strip_prefix('\u{feff}').unwrap_or(&before);
                let message = "this is not UTF-8; save the file as UTF-8".to_owned();
                let place = Some((before, before.len()));
                Err(ConfigErrors::alone(
                    Some(path),
                    place,
                    "file-not-utf8",
                    message,
                ))
            }
        }
    }

    /// Reads a text in TOML, of at most 1 MiB.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the text. If there is one, mistakes in the values of other tables
    /// are returned, too.
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        match text.len() > MAX_BYTES {
            true => Err(too_large(None)),
            false => Self::read(text, None),
        }
    }

    fn read(text: &str, path: Option<&Path>) -> Result<Self, ConfigErrors> {
        let (document, mut problems) = Document::read(text, path)?;
        let config = Self {
            document: Arc::new(document),
            readers: Readers::new(),
            redis_url: None,
        };
        if !problems.is_empty() {
            problems.extend(Builders::mistakes_beside(&config, &problems));
        }
        config.document.finish(problems)?;
        Ok(config)
    }

    /// Sets the closures that the file refers to by name. Default: none.
    ///
    /// A name in the file that is not registered is an error when it is built.
    #[must_use]
    pub fn readers(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }

    /// Uses the Redis at this URL in place of the one that the file names, as a tool does. It has no
    /// effect on a file that keeps buckets elsewhere.
    #[must_use]
    pub fn redis_url(mut self, url: impl Into<String>) -> Self {
        self.redis_url = Some(url.into());
        self
    }

    /// Returns the path of the file of lists that this file names.
    fn file_of_lists(&self) -> Option<PathBuf> {
        let file = self.document.tables.lists.as_ref()?.file.as_ref()?;
        Some(self.path_beside(&file.0))
    }

    /// Returns a path that this file names, which is relative to its folder.
    fn path_beside(&self, path: &str) -> PathBuf {
        let folder = self.path().and_then(Path::parent).unwrap_or(Path::new(""));
        folder.join(path)
    }

    /// Logs each range of trusted proxies that is as wide as a /8.
    fn warn_of_proxies(&self) {
        let is_wide = |range: String| {
            let most = if range.contains(':') { 32 } else { 8 };
            let bits = range.rsplit('/').next().and_then(|bits| bits.parse().ok());
            bits.is_some_and(|bits: u8| bits <= most)
        };
        let tables = self.document.tables.client_ip.iter();
        for Text(text) in tables.flat_map(|table| &table.trusted) {
            let proxies = key::client_ip([text]);
            if text != "loopback" && proxies.trusted_ranges().any(is_wide) {
                telemetry::wide_proxies(text);
            }
        }
    }

    /// Returns the path of the file, if the text is from one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.document.path.as_deref()
    }
}

fn unreadable(path: &Path, error: &impl fmt::Display) -> ConfigErrors {
    let message = format!("cannot read the file ({error}); correct the path, or make it readable");
    ConfigErrors::alone(Some(path), None, "file-unreadable", message)
}

fn too_large(path: Option<&Path>) -> ConfigErrors {
    let message = "more than 1 MiB; split the file, or name a file in `[lists]`".to_owned();
    ConfigErrors::alone(path, None, "file-too-large", message)
}

impl fmt::Debug for Config {
    /// Shows no values but names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.path())
            .field("names", &self.names())
            .finish()
    }
}
