//! Small tools that know nothing about rate limits.

pub(crate) mod absences;
pub(crate) mod detach;
pub(crate) mod file;
pub(crate) mod hash;
pub(crate) mod interned;
pub(crate) mod lock;
pub(crate) mod network;
pub(crate) mod on_drop;
pub(crate) mod random;
pub(crate) mod runtime;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod split_mix;
pub(crate) mod task;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod text;
pub(crate) mod thread_number;
pub(crate) mod time;
