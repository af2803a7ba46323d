//! [`Status`]: which version is in force, and what was rejected.

use std::time::SystemTime;

use super::{Changes, ConfigErrors};

/// Which version of a file is in force, and whether a newer one was rejected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The number of the version: 1 for the one that the process started with. It rises by 1 with
    /// each that is applied.
    pub version: u64,
    /// A hash of the files of this version, in hexadecimal: processes with the same files have the
    /// same. `None` if it was not read from a file.
    pub hash: Option<String>,
    /// When this version was applied.
    pub applied_at: SystemTime,
    /// What this version changed. It is empty for the first one.
    pub changes: Changes,
    /// Why the files as they are now are not in force. `None`: they are.
    pub rejected: Option<Rejected>,
    /// Whether the file is [watched](super::Limits::watch).
    pub is_watching: bool,
    /// When the files were last read to look for a change. `None`: never.
    pub read_at: Option<SystemTime>,
}

/// Files that were not applied.
///
/// **The danger**: the process continues with the former version. It cannot start again with a file
/// that has mistakes. A change that needs a restart is not a mistake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// When they were rejected first.
    pub since: SystemTime,
    /// All mistakes.
    pub errors: ConfigErrors,
}
