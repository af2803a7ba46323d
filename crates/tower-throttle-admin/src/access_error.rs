//! [`AccessError`].

use std::{error::Error, fmt};

/// Why an [`Access`](crate::Access) was not made. It displays what is wrong and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl AccessError {
    /// Returns the code of the error in the [table of errors], which no release changes.
    ///
    /// [table of errors]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/errors/#the-admin-page
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
