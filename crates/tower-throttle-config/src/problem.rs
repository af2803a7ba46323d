//! What is wrong in a file, and where.

use std::{error::Error, fmt, sync::Arc};

pub(super) use super::code::Code;
use super::{
    tree::{MAX_DEPTH, Place},
    wording,
};
use tower_throttle::ConfigError;

/// One mistake in a configuration file.
///
/// It is printed as `limits.toml:22:1: policy "plan": unknown field "keys"; did you mean "key"?
/// (unknown-field)`. [`code`](Self::code) returns the word at the end, which the
/// [table of errors](https://github.com/tower-throttle/tower-throttle/blob/main/docs/errors.md)
/// explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    file: Option<Arc<str>>,
    place: Option<Place>,
    path: String,
    code: &'static str,
    message: String,
}

impl ConfigProblem {
    pub(super) fn new(place: Option<Place>, path: String, code: Code, message: String) -> Self {
        Self {
            file: None,
            place,
            path,
            code: code.text(),
            message,
        }
    }

    /// Creates a problem from what a builder says.
    pub(super) fn of_error(place: Option<Place>, path: String, error: &ConfigError) -> Self {
        Self {
            file: None,
            place,
            path,
            code: error.code(),
            message: wording::in_a_file(error),
        }
    }

    /// Leaves out what the message quotes, as it may be the value of a variable.
    pub(super) fn without_quoted_values(mut self) -> Self {
        if let (Some(first), Some(last)) = (self.message.find('"'), self.message.rfind('"')) {
            self.message.replace_range(first..=last, "\"..\"");
        }
        self
    }

    pub(super) fn too_deep(place: Option<Place>) -> Self {
        let message =
            format!("lists and tables are more than {MAX_DEPTH} levels deep; write flatter ones");
        Self::new(place, String::new(), Code::TooDeep, message)
    }

    /// Returns the file, if the text is from one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Returns the line, from 1. `None` in what serde read from another format, and for mistakes
    /// that are nowhere in the text.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.place.map(|place| place.line)
    }

    /// Returns the column, from 1, in characters. There is one where there is a
    /// [line](Self::line).
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.place.map(|place| place.column)
    }

    /// Returns where the mistake is in the tables of the file, such as `policy "burst".quota`. It
    /// is empty for the file itself.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the code of the mistake: one word of a fixed set that stays the same from release
    /// to release. That of a [`ConfigError`] is the [same](ConfigError::code).
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// Returns what is wrong and what to change.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        if self.file.is_some() || self.place.is_some() {
            f.write_str(" ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} ({})", self.message, self.code)
    }
}

/// All mistakes of a configuration file, in the order of the text: one at least.
///
/// Each is printed on a line of its own, the first 100 of them. `Debug` shows the same, because a
/// `main` that returns the error prints it so.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigProblem>);

impl ConfigErrors {
    /// Returns the mistakes.
    #[must_use]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 100;

        for (index, problem) in self.0.iter().take(MOST).enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl Error for ConfigErrors {}

/// Collects mistakes, so that all of them are reported and not the first alone.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<ConfigProblem>);

impl Problems {
    pub(super) fn push(&mut self, problem: ConfigProblem) {
        self.0.push(problem);
    }

    pub(super) fn contains(&self, problem: &ConfigProblem) -> bool {
        self.0.contains(problem)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the value, or keeps what is wrong.
    pub(super) fn keep<T>(&mut self, result: Result<T, ConfigProblem>) -> Option<T> {
        result.map_err(|problem| self.push(problem)).ok()
    }

    /// Returns an error if anything is wrong. `file`: where the text is from.
    pub(super) fn finish(self, file: Option<&Arc<str>>) -> Result<(), ConfigErrors> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(self.into_errors(file)),
        }
    }

    /// Makes an error of the mistakes, of which there is one at least.
    pub(super) fn into_errors(self, file: Option<&Arc<str>>) -> ConfigErrors {
        let mut problems = self.0;
        for problem in &mut problems {
            problem.file = file.cloned();
        }
        problems.sort_by_key(|problem| problem.place);
        ConfigErrors(problems)
    }
}

impl Extend<ConfigProblem> for Problems {
    fn extend<I: IntoIterator<Item = ConfigProblem>>(&mut self, problems: I) {
        self.0.extend(problems);
    }
}
