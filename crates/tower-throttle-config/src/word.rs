//! Words: texts of a fixed set, some with an argument.

#![allow(dead_code, reason = "what is for people is read by schemas and tests")]

use std::fmt;

/// A word that a text may be, or may start with.
pub(super) struct Word {
    /// With what separates it from its argument: `header:`.
    pub(super) text: &'static str,
    pub(super) argument: Option<Argument>,
    /// What it means, in a sentence.
    pub(super) about: &'static str,
}

/// What follows a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A text of one character or more.
    Name,
    /// A whole number from 1 to 999,999,999.
    Number,
}

impl Argument {
    fn takes(self, text: &str) -> bool {
        match self {
            Self::Name => !text.is_empty(),
            Self::Number => {
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
                is_number && (1..=9).contains(&text.len()) && !text.starts_with('0')
            }
        }
    }

    /// Says what it is, for people.
    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Name => "a name",
            Self::Number => "a whole number from 1",
        }
    }

    /// Returns a regular expression for what it takes.
    pub(super) const fn pattern(self) -> &'static str {
        match self {
            Self::Name => ".+$",
            Self::Number => "[1-9][0-9]{0,8}$",
        }
    }
}

impl Word {
    pub(super) const fn new(text: &'static str, about: &'static str) -> Self {
        Self {
            text,
            argument: None,
            about,
        }
    }

    pub(super) const fn with(text: &'static str, argument: Argument, about: &'static str) -> Self {
        Self {
            text,
            argument: Some(argument),
            about,
        }
    }

    /// Returns what follows the word in a text, if the text is this one. Without an argument that
    /// is nothing.
    pub(super) fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        let rest = text.strip_prefix(self.text)?;
        let is_it = match self.argument {
            Some(argument) => argument.takes(rest),
            None => rest.is_empty(),
        };
        is_it.then_some(rest)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)?;
        f.write_str(match self.argument {
            Some(Argument::Name) => "NAME",
            Some(Argument::Number) => "N",
            None => "",
        })
    }
}
