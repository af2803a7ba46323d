//! When an entry ends, as an operator types it.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use super::entry::{last_time, milliseconds, time};
use crate::{
    ConfigError,
    util::text::{self, Mistake},
};

/// When an entry ends: at a [`SystemTime`], or a [`Duration`] after it was made.
///
/// It is read from text, as an operator types it:
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::control::End;
///
/// assert_eq!("15 minutes".parse::<End>()?, Duration::from_secs(900).into());
/// assert_eq!("7d".parse::<End>()?, Duration::from_secs(604_800).into());
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// `None`: it ends `wait` after it was made.
    at: Option<SystemTime>,
    wait: Duration,
}

impl End {
    /// Returns the end of an entry that is made now, as a document has it.
    pub(super) fn when_made(self, now: SystemTime) -> SystemTime {
        // An end that no clock can express becomes the last one, because a ban needs an end.
        let later = || now.checked_add(self.wait).unwrap_or(last_time());
        let end = self.at.unwrap_or_else(later);
        time(milliseconds(end)).unwrap_or(end)
    }
}

impl FromStr for End {
    type Err = ConfigError;

    /// Reads a time from now: a whole number and a unit.
    ///
    /// # Errors
    ///
    /// Returns an error with a [span](ConfigError::span) if a word of the text is wrong, and one
    /// without if the time is zero.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |reason: &str| ConfigError::new("end-text", format!("end {text:?}: {reason}"));
        match text::duration(text) {
            Ok(Duration::ZERO) => Err(error("it is no time; write a longer one")),
            Ok(time) => Ok(time.into()),
            Err(Mistake { at, reason }) => Err(error(&reason).with_span(at)),
        }
    }
}

impl From<SystemTime> for End {
    fn from(at: SystemTime) -> Self {
        let (at, wait) = (Some(at), Duration::ZERO);
        Self { at, wait }
    }
}

impl From<Duration> for End {
    fn from(wait: Duration) -> Self {
        Self { at: None, wait }
    }
}
