//! [`Reading`]: the mistakes that are found while a file is read, and the readers that it names.

#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::{env, sync::Arc};

use tower_throttle::ConfigError;

use crate::{
    Config, ConfigErrors, ReaderName,
    place::FilePlace,
    problem::Problem,
    readers::{Named, Readers},
    suggest::closest,
    tables::{File, Variables},
    variables,
};

/// A file that is being read.
pub(super) struct Reading<'a> {
    pub(super) config: &'a Config,
    pub(super) readers: &'a Readers,
    pub(super) problems: Vec<Problem>,
    /// The readers that the file has named so far.
    pub(super) named: Vec<ReaderName>,
}

/// Names a field of a table, and its value.
macro_rules! field {
    ($at:expr, $table:expr, $field:ident) => {
        (&$at.to(stringify!($field)), $table.$field.as_ref())
    };
}
pub(super) use field;

/// Returns what is registered under the name that a field has.
macro_rules! reader {
    ($reading:expr, $at:expr, $table:expr, $field:ident) => {
        reader!($reading, $at, $table, $field, $field)
    };
    ($reading:expr, $at:expr, $table:expr, $field:ident, $kind:ident) => {{
        let (at, registered) = ($at.to(stringify!($field)), &$reading.readers.$kind);
        let name = $table.$field.as_ref();
        name.and_then(|name| $reading.find(&at, registered, stringify!($kind), &name.0))
    }};
}
pub(super) use reader;

/// Applies the settings that a table has to a builder.
macro_rules! set {
    ($builder:ident, $($method:ident = $value:expr),+ $(,)?) => {
        $(if let Some(value) = $value {
            $builder = $builder.$method(value);
        })+
    };
}
pub(super) use set;

/// Applies the flags that are `true` in a table.
macro_rules! switch {
    ($builder:ident, $table:expr, $($flag:ident),+ $(,)?) => {
        $(if $table.$flag == Some(true) {
            $builder = $builder.$flag();
        })+
    };
}
pub(super) use switch;

impl<'a> Reading<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        Self {
            config,
            readers: &config.readers,
            problems: Vec::new(),
            named: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &'a File {
        &self.config.document.tables
    }

    /// Returns an error if anything is wrong.
    pub(super) fn finish(self) -> Result<(), ConfigErrors> {
        self.config.document.finish(self.problems)
    }

    pub(super) fn report(
        &mut self,
        at: &FilePlace,
        code: &'static str,
        message: impl Into<String>,
    ) {
        self.problems.push(Problem::new(at, code, message.into()));
    }

    /// Reports that a feature of the crate is off.
    #[cfg(not(all(feature = "axum", feature = "redis")))]
    pub(super) fn report_feature(&mut self, at: &FilePlace, what: &str, feature: &str) {
        let message = format!(
            "{what} needs the feature `{feature}` of tower-throttle-config, which is off; turn it on in Cargo.toml"
        );
        self.report(at, "feature-off", message);
    }

    /// Reports an error of a builder, unless it was reported before: two layers may share a policy.
    pub(super) fn report_error(&mut self, at: &FilePlace, error: &ConfigError) {
        let problem = Problem::of_error(at, error);
        let value = at.value_in(&self.config.document.value);
        let text = value.and_then(|value| value.as_str()).unwrap_or_default();
        let problem = match text.contains("${") {
            true => problem.without_quoted_values(),
            false => problem,
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Reports an error at the first of some fields that a table has, or at the table.
    pub(super) fn report_in(&mut self, table: &FilePlace, fields: &[&str], error: &ConfigError) {
        let file = &self.config.document.value;
        let mut places = fields.iter().map(|field| table.to(&field));
        let place = places.find(|at| at.value_in(file).is_some());
        self.report_error(place.as_ref().unwrap_or(table), error);
    }

    /// Returns the value, or reports the error at its place.
    pub(super) fn keep<T>(&mut self, at: &FilePlace, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|error| self.report_error(at, &error)).ok()
    }

    /// Returns a text with the values of the variables that it names.
    pub(super) fn expanded(
        &mut self,
        (at, text): (&FilePlace, Option<&Variables>),
    ) -> Option<String> {
        let expanded = variables::expand(&text?.0, |name| env::var(name).ok());
        expanded
            .map_err(|(code, message)| self.report(at, code, message))
            .ok()
    }

    /// Returns the path of a file that a text names.
    #[cfg(feature = "redis")]
    pub(super) fn path(&mut self, field: (&FilePlace, Option<&Variables>)) -> Option<PathBuf> {
        let text = self.expanded(field)?;
        Some(self.config.path_beside(&text))
    }

    /// Returns what is registered under a name. `kind`: the method of [`Readers`] which registers it.
    pub(super) fn find<T: ?Sized>(
        &mut self,
        at: &FilePlace,
        registered: &'a Named<T>,
        kind: &'static str,
        name: &str,
    ) -> Option<Arc<T>> {
        self.named.extend(ReaderName::new(kind, name));
        let found = registered.get(name);
        if found.is_none() {
            let proposal = match closest(name, registered.keys().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("register it with `Readers::{kind}({name:?}, ..)`"),
            };
            let message = format!("no reader {name:?} of this kind is registered; {proposal}");
            self.report(at, "unknown-reader", message);
        }
        found.cloned()
    }
}
