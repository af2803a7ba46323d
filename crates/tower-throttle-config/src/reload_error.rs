//! Why a file was not applied.

use std::{error::Error, fmt};

use super::ConfigErrors;

/// Why [`Limits::reload`](super::Limits::reload) or [`watch`](super::Limits::watch) failed. The
/// limits stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReloadError {
    /// The file cannot be read, or has mistakes, or changes what needs a restart.
    Rejected(ConfigErrors),
    /// The limits were not read from a file. [`Limits::replace`](super::Limits::replace) changes
    /// them.
    NoFile,
    /// The file changes each time it is read.
    Unsettled,
    /// There is no Tokio runtime, or it is about to end.
    NoRuntime,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(errors) => errors.fmt(f),
            Self::NoFile => f.write_str("the limits are not from a file; use `replace(..)`"),
            Self::Unsettled => {
                f.write_str("the file changes each time it is read; reload it when it is written")
            }
            Self::NoRuntime => f.write_str("no Tokio runtime; call this inside of one"),
        }
    }
}

impl Error for ReloadError {}

impl From<ConfigErrors> for ReloadError {
    fn from(errors: ConfigErrors) -> Self {
        Self::Rejected(errors)
    }
}
