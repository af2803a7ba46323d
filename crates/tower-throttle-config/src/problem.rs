//! What is wrong in a file, and where.

use std::{error::Error, fmt, path::Path, sync::Arc};

use toml::de::DeTable;

use super::{place::FilePlace, wording};
use tower_throttle::{ConfigError, plain_text};

/// One mistake in a configuration file.
///
/// It is printed as `limits.toml:22:1: policy "plan": unknown field "keys"; did you mean "key"?
/// (unknown-field)`. [`code`](Self::code) returns the word at the end, which the
/// [table of errors](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/errors/)
/// explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    file: Option<Arc<str>>,
    /// The line and the column, both from 1. A column is one character.
    place: Option<(usize, usize)>,
    path: String,
    code: &'static str,
    message: String,
}

impl ConfigProblem {
    /// Returns the file, if the text is from one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Returns the line, from 1. `None` for a mistake that is nowhere in the text.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.place.map(|(line, _)| line)
    }

    /// Returns the column, from 1, in characters. There is one where there is a
    /// [line](Self::line).
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.place.map(|(_, column)| column)
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
            write!(f, "{}:", plain_text(file))?;
        }
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        if self.file.is_some() || self.place.is_some() {
            f.write_str(" ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", plain_text(&self.path))?;
        }
        write!(f, "{} ({})", plain_text(&self.message), self.code)
    }
}

/// All mistakes of a configuration file, in the order of the text: one at least.
///
/// Each is printed on a line of its own, the first 100 of them. `Debug` shows the same, because a
/// `main` that returns the error prints it so.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigProblem>);

impl ConfigErrors {
    /// Makes an error of one problem with a whole file, or with a place of its text.
    pub(super) fn alone(
        path: Option<&Path>,
        place: Option<(&str, usize)>,
        code: &'static str,
        message: String,
    ) -> Self {
        Self(vec![ConfigProblem {
            file: name(path),
            place: place.map(|(text, offset)| TextPosition::default().advance(text, offset)),
            path: String::new(),
            code,
            message,
        }])
    }

    /// Makes an error of at least one mistake. `text`: that of the file.
    pub(super) fn new(problems: Vec<Problem>, path: Option<&Path>, text: &str) -> Self {
        let (tree, _) = DeTable::parse_recoverable(text);
        let find = |problem: Problem| {
            let found = problem.at.find(tree.get_ref(), problem.is_of_name);
            (found, problem)
        };
        let mut found: Vec<_> = problems.into_iter().map(find).collect();
        found.sort_by_key(|((offset, _), _)| *offset);
        let (file, mut place) = (name(path), TextPosition::default());
        let problems = found
            .into_iter()
            .map(|((offset, path), problem)| ConfigProblem {
                file: file.clone(),
                place: offset.map(|offset| place.advance(text, offset)),
                path,
                code: problem.code,
                message: problem.message,
            });
        Self(problems.collect())
    }

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

fn name(path: Option<&Path>) -> Option<Arc<str>> {
    path.map(|path| path.display().to_string().into())
}

/// A mistake, before its place is looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) at: FilePlace,
    /// Whether it is with the name of a field, and not with its value.
    pub(super) is_of_name: bool,
    pub(super) code: &'static str,
    message: String,
}

impl Problem {
    pub(super) fn new(at: &FilePlace, code: &'static str, message: String) -> Self {
        Self {
            at: at.clone(),
            is_of_name: false,
            code,
            message,
        }
    }

    /// Creates a problem from the error of a builder.
    pub(super) fn of_error(at: &FilePlace, error: &ConfigError) -> Self {
        Self::new(at, error.code(), wording::in_a_file(error))
    }

    /// Leaves out what the message quotes, as it may be the value of a variable.
    pub(super) fn without_quoted_values(mut self) -> Self {
        if let (Some(first), Some(last)) = (self.message.find('"'), self.message.rfind('"')) {
            self.message.replace_range(first..=last, "\"..\"");
        }
        self
    }
}

/// A position in a text.
#[derive(Default)]
struct TextPosition {
    offset: usize,
    line: usize,
    column: usize,
}

impl TextPosition {
    /// Moves to a later position. Returns its line and its column.
    fn advance(&mut self, text: &str, offset: usize) -> (usize, usize) {
        let between = text.get(self.offset..offset).unwrap_or_default();
        for letter in between.chars() {
            match letter {
                '\n' => (self.line, self.column) = (self.line + 1, 0),
                _ => self.column += 1,
            }
        }
        self.offset = offset;
        (self.line + 1, self.column + 1)
    }
}
