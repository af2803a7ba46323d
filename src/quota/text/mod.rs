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
    /// [`ConfigError::QuotaText`] if the text is no quota, and what the conversion from the
    /// algorithm's type returns if it is one that cannot be.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let built = read::quota(text).map_err(|Mistake { at, reason }| ConfigError::QuotaText {
            text: text.to_owned(),
            at,
            reason,
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
