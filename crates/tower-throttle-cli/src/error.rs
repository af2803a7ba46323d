//! [`Result`]: the result of a command, and of its steps.

use std::error::Error;

/// An error is why a command could not do what it was asked for. The exit code is 2.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
