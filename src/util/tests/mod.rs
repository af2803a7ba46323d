//! Helps tests of the crate.

#[cfg(feature = "tracing")]
pub(crate) mod log;
#[allow(clippy::panic)]
pub(crate) mod repository;
