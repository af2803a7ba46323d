//! [`AccessError`]: a secret that cannot be used.

use std::{error::Error, fmt};

/// Why an [`Access`](crate::Access) was not made. It displays what is wrong and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessError {
    code: &'static str,
    message: String,
}

impl AccessError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Returns the code of the error in the [table of errors], which no release changes.
    ///
    /// [table of errors]: https://github.com/tower-throttle/tower-throttle/blob/main/docs/errors.md#the-admin-page
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for AccessError {}
