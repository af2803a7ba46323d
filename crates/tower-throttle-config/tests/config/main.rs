//! Limits from a file: what is read, and what is reported.

mod bad;
mod good;
mod in_redis;
mod parser;
mod reload;
mod schema;

#[path = "../../../../tests/support/mod.rs"]
mod support;
