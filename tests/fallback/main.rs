//! What this process decides while its store fails, and the guard around a store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[allow(unused_imports)]
#[path = "../common/mod.rs"]
mod common;
#[path = "../web/mod.rs"]
mod web;

mod dear;
mod equal;
mod flapping;
mod guarded;
#[cfg(feature = "redis")]
mod kinds;
#[cfg(feature = "tracing")]
mod logs;
mod mended;
mod mixed;
mod permits;
mod quiet;
mod quotas;
mod shared;
mod shares;
mod switch;
mod waiting;
