//! A file does what the same words do in code.

mod examples;
// Some fields need these features.
#[cfg(all(feature = "axum", feature = "redis"))]
mod fields;
mod keys;
mod logs;
mod world;
