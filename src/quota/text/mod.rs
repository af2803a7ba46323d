//! Quotas as text, in the words of the builders: `10 per second, burst 20`.

mod algorithm;
mod build;
mod options;
mod period;
mod read;
mod write;

use std::str::FromStr;

use super::Quota;
use crate::{ConfigError, util::text::Mistake};

impl FromStr for Quota {
    type Err = ConfigError;

    /// Reads a quota from [text](Self#as-text).
    ///
    /// # Errors
    ///
    /// Returns an error with a [span](ConfigError::span) if a word of the text is wrong, and the
    /// error of the algorithm's type if its numbers are.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let built = read::quota(text).map_err(|Mistake { at, reason }| {
            ConfigError::new("quota-text", format!("quota {text:?}: {reason}")).with_span(at)
        });
        built?
    }
}

/// Reads [text](Quota#as-text), so that `Policy::new("api", "10 per second")` is a policy.
impl TryFrom<&str> for Quota {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        text.parse()
    }
}
