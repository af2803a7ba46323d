//! Texts that people write into files, variables and commands: words, whole numbers and times.

mod duration;
mod suggest;
mod words;

use std::ops::Range;

pub(crate) use self::{
    duration::{DurationText, duration},
    suggest::{closest, proposal},
    words::Words,
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
