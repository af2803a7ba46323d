//! Quotas as text, in the words of the builders: `10 per second, burst 20`.

mod algorithm;
mod read;
mod write;

use std::{str::FromStr, time::Duration};

use super::Quota;
use crate::{
    ConfigError,
    util::text::{self, Mistake},
};

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

/// Reads a time as quotas have it: a whole number and a unit, as in `50ms`, `30 s` or `5 minutes`.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::parse_duration;
///
/// assert_eq!(parse_duration("5 minutes")?, Duration::from_secs(300));
/// let error = parse_duration("5 minuets").unwrap_err();
/// assert_eq!(error.to_string(), r#""5 minuets": no unit "minuets"; did you mean "minute"?"#);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # Errors
///
/// Returns an error that names what to change, with the [place](ConfigError::span) of the wrong
/// word.
pub fn parse_duration(text: &str) -> Result<Duration, ConfigError> {
    text::duration(text).map_err(|Mistake { at, reason }| {
        ConfigError::new("duration-text", format!("{text:?}: {reason}")).with_span(at)
    })
}

/// Reads [text](Quota#as-text), so that `Policy::new("api", "10 per second")` is a policy.
impl TryFrom<&str> for Quota {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        text.parse()
    }
}
