//! Limits from a file: what is read, and what is reported.

mod bad;
mod files;
mod formats;
mod good;
#[cfg(feature = "redis")]
mod in_redis;
mod parser;
mod schema;

#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;
