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
//! [reload] says what a change does.
//!
//! | word | meaning |
//! |---|---|
//! | version | a content of the file. One is in force, and a wrong one is rejected |
//! | reader | a closure of the application that the file names: [`Readers`] |
//! | problem | one mistake in a file, with its place: [`ConfigProblem`] |
//! | change | what differs between two versions: [`Config::diff`] |
//! | form | what a field may hold, without what its value means |
//! | tree, field | the values of a file; one of them, with its path and its form |
//!
//! [guide]: https://github.com/tower-throttle/tower-throttle/blob/main/docs/configuration.md
//! [reference]: https://github.com/tower-throttle/tower-throttle/blob/main/docs/configuration-reference.md
//! [reload]: https://github.com/tower-throttle/tower-throttle/blob/main/docs/reload.md
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
// 1. `from_toml` or `from_serde` makes a tree of the text (`tree::Node`), TOML with the place of
//    each value.
// 2. `check` compares the tree with the `descriptor`, the one home of what a file may say, and
//    collects all mistakes as `problem::Problems`. A `Config` has passed it.
// 3. `builders::Builders::read` makes builders of the tree, without a store and without connecting.
//    It reads the tree by `field::Field`, which starts at `Config::root`, and need not look for
//    mistakes of form: a field that is there has the form of its descriptor. What a builder reports
//    is a problem at its field:
//
//        let mut policy = Policy::new(name, quota);
//        if let Some(lifetime) = field.get("hold_for").and_then(|field| field.duration()) { .. }
//        for key in field.get("key")?.items() { match key.word() { Some(("header:", name)) => .. } }
//        let url = problems.keep(store.get("redis")?.expanded());      // with `${NAME}`
//        problems.keep(built.map_err(|error| field.error(&error)));    // a `ConfigError`
//        problems.push(field.problem(Code::UnknownReader, message));   // one that only files have
//        problems.finish(config.file_name().as_ref())?;                // all of them, if any
//
// 4. `shared::Shared` opens `Builders::store` once, and `in_force::InForce` builds all layers and
//    limiters with it. A later version of the file replaces the one in force.
//
// A new field is a line in `descriptor/`, and a new mistake that only files have is a line of
// `codes!` in `code.rs` and a row in `docs/errors.md`.

mod builders;
mod changes;
mod check;
mod code;
mod content;
mod descriptor;
mod explanation;
mod field;
mod file;
mod form;
mod from_serde;
mod from_toml;
#[cfg(doctest)]
mod guides;
mod in_force;
mod inspected;
mod limits;
mod lock;
mod matching;
mod metrics;
mod named;
mod names;
mod poll;
mod problem;
mod readers;
mod reload_error;
mod schema;
mod shared;
mod status;
mod suggest;
mod telemetry;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
mod text;
mod tree;
mod variables;
mod word;
mod wording;

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::de::{Deserialize, Deserializer, Error};

pub use self::{
    changes::{Change, Changes, Effect, FieldChange},
    explanation::{Explanation, FoundCondition, FoundKey, FoundPolicy},
    limits::{Limits, UnknownName},
    names::{Names, ReaderName},
    problem::{ConfigErrors, ConfigProblem},
    readers::Readers,
    reload_error::ReloadError,
    status::{Rejected, Status},
};
use self::{
    field::Field,
    problem::{Code, Problems},
    tree::{Node, Place},
};

/// The layer of a file that has no table for a layer or limiter.
const DEFAULT_LAYER: &str = "default";

/// The size of the largest file.
const MAX_BYTES: usize = 1 << 20;

/// A configuration file: which limits there are.
///
/// The form of the file is checked when it is read, and all mistakes are reported at once.
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
///
/// Other formats are read by a crate for serde of your own, as `Config` is [`Deserialize`]. Their
/// mistakes have a path, but no line.
#[derive(Clone)]
pub struct Config {
    root: Arc<Node>,
    file: Option<Arc<Path>>,
    readers: Readers,
}

impl Config {
    /// Reads a TOML file of at most 1 MiB. It waits for the file system, so call it at the start, or
    /// where code may block.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the file.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let file = fs::File::open(path);
        let most = MAX_BYTES as u64 + 1;
        let read = file.and_then(|file| file.take(most).read_to_end(&mut bytes));
        match read {
            Ok(_) => Self::from_bytes(path, &bytes),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    /// Reads the content of a file that was at a path.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the file.
    pub(crate) fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ConfigErrors> {
        match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_BYTES => Self::read("", Some(path), bytes.len()),
            Ok(text) => Self::read(text, Some(path), bytes.len()),
            Err(error) => Err(not_text(path, bytes, error.valid_up_to())),
        }
    }

    /// Reads a text in TOML, of at most 1 MiB.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the form of the text.
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        Self::read(text, None, text.len())
    }

    fn read(text: &str, path: Option<&Path>, length: usize) -> Result<Self, ConfigErrors> {
        if length > MAX_BYTES {
            let message = "more than 1 MiB; split the file, or name a file in `[lists]`".to_owned();
            return Err(alone(path, Code::TooLarge, message));
        }
        let mut problems = Problems::default();
        let root = match from_toml::read(text) {
            Ok(root) => root,
            Err(errors) => {
                problems.extend(errors);
                return Err(problems.into_errors(name(path).as_ref()));
            }
        };
        Self::checked(root, path.map(Arc::from))
    }

    fn checked(root: Node, file: Option<Arc<Path>>) -> Result<Self, ConfigErrors> {
        let mut problems = Problems::default();
        check::check(&root, &mut problems);
        problems.finish(name(file.as_deref()).as_ref())?;
        Ok(Self {
            root: Arc::new(root),
            file,
            readers: Readers::new(),
        })
    }

    /// Sets the closures that the file refers to by name. Default: none.
    ///
    /// A name in the file that is not registered is an error when it is built.
    #[must_use]
    pub fn readers(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }

    /// Returns the path of the file of lists that this file names.
    fn file_of_lists(&self) -> Option<PathBuf> {
        let file = self.root().get("lists")?.get("file")?;
        let folder = self.path().and_then(Path::parent).unwrap_or(Path::new(""));
        Some(folder.join(file.text()?))
    }

    /// Returns the path of the file as text, for problems.
    fn file_name(&self) -> Option<Arc<str>> {
        name(self.path())
    }

    /// Returns the file, to read its values.
    fn root(&self) -> Field<'_> {
        Field::root(&self.root)
    }

    /// Returns the path of the file, if the text is from one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

fn name(path: Option<&Path>) -> Option<Arc<str>> {
    path.map(|path| path.display().to_string().into())
}

fn unreadable(path: &Path, error: &impl fmt::Display) -> ConfigErrors {
    let message = format!("cannot read the file ({error}); correct the path, or make it readable");
    alone(Some(path), Code::Unreadable, message)
}

/// Makes an error of one problem with a whole file.
fn alone(path: Option<&Path>, code: Code, message: String) -> ConfigErrors {
    alone_at(None, path, code, message)
}

fn alone_at(
    place: Option<Place>,
    path: Option<&Path>,
    code: Code,
    message: String,
) -> ConfigErrors {
    let mut problems = Problems::default();
    problems.push(ConfigProblem::new(place, String::new(), code, message));
    problems.into_errors(name(path).as_ref())
}

/// Makes an error of bytes of which so many are UTF-8.
fn not_text(path: &Path, bytes: &[u8], valid: usize) -> ConfigErrors {
    let before = bytes.get(..valid).unwrap_or_default();
    let before = String::from_utf8_lossy(before);
    let before = before.strip_prefix('\u{feff}').unwrap_or(&before);
    let last = before.rsplit('\n').next().unwrap_or_default();
    let place = Place {
        line: before.matches('\n').count() + 1,
        column: last.chars().count() + 1,
    };
    let message = "this is not UTF-8; save the file as UTF-8".to_owned();
    alone_at(Some(place), Some(path), Code::NotText, message)
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let root = Node::deserialize(deserializer)?;
        Self::checked(root, None).map_err(Error::custom)
    }
}

impl fmt::Debug for Config {
    /// Shows the names of fields, and no values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.path())
            .field("root", &self.root)
            .finish()
    }
}
