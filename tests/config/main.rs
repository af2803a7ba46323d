//! Limits from a file: what is read, and what is reported.

mod bad;
mod files;
mod formats;
mod parser;
mod schema;
