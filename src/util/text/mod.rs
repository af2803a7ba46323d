//! Texts that people write into files, variables and commands: words, whole numbers and times.

mod duration;
mod plain;
mod suggest;
mod words;

use std::ops::Range;

pub(crate) use self::duration::duration;
pub use self::plain::plain_text;
pub(crate) use self::{
    duration::duration_text,
    suggest::choice,
    words::{Piece, Words},
};

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The bytes of the wrong word. Empty if a word is missing there.
    pub(crate) at: Range<usize>,
    /// `what is wrong; what to change`.
    pub(crate) reason: String,
}

impl Mistake {
    pub(crate) fn new(at: Range<usize>, reason: impl Into<String>) -> Self {
        Self {
            at,
            reason: reason.into(),
        }
    }
}

/// Returns a word in quotes, for a message. A long one is cut.
pub(crate) fn quoted(word: &str) -> String {
    match word
        .char_indices()
        .nth(40)
        .and_then(|(end, _)| word.get(..end))
    {
        Some(start) => format!("\"{}..\"", start.escape_debug()),
        None => format!("{word:?}"),
    }
}
