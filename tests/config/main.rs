//! Limits from a file: what is read, and what is reported.

mod bad;
mod files;
mod formats;
mod good;
mod parser;
mod schema;
