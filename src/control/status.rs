//! What operators learn of a document.

use std::time::{Duration, SystemTime};

/// How a [`Control`](super::Control) stands in this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The version of the document that applies: when it was written, in milliseconds since the
    /// epoch by the clock of Redis. It is higher after each change, and may be lower after a failover. 0: no change has been made, or
    /// none was read yet.
    pub version: u64,
    /// When this version was applied here.
    pub applied_at: Option<SystemTime>,
    /// How many of its entries have not ended.
    pub entries: usize,
    /// The time since the document was last found to be readable and up to date. `None`: never.
    pub age: Option<Duration>,
    /// Why what is stored differs from what applies here: it cannot be read, lacks changes that
    /// could not be stored again, or Redis does not answer. `None`: it does not differ.
    pub problem: Option<String>,
    /// The policies of its entries that no layer or limiter of this process has. They may be
    /// those of other processes.
    pub unknown_policies: Vec<String>,
}
