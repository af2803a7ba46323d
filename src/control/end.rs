//! When an entry ends, as an operator says it.

use std::time::{Duration, SystemTime};

use super::entry::{last_time, milliseconds, time};

/// When an entry ends: at a [`SystemTime`], or a [`Duration`] after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End(EndKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndKind {
    At(SystemTime),
    After(Duration),
}

impl End {
    /// Returns the end of an entry that is made now, as a document has it.
    pub(super) fn when_made(self, now: SystemTime) -> SystemTime {
        let end = match self.0 {
            EndKind::At(at) => at,
            // An end that no clock can express is the last one: without any, a ban is no entry.
            EndKind::After(wait) => now.checked_add(wait).unwrap_or(last_time()),
        };
        time(milliseconds(end)).unwrap_or(end)
    }
}

impl From<SystemTime> for End {
    fn from(at: SystemTime) -> Self {
        Self(EndKind::At(at))
    }
}

impl From<Duration> for End {
    fn from(wait: Duration) -> Self {
        Self(EndKind::After(wait))
    }
}
