//! The layer as a Tower service: readiness, errors, bodies, cancellation, and
//! which policies a request meets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../web/mod.rs"]
mod web;

mod bodies;
mod buckets;
mod cancelling;
mod composing;
mod policies;
mod readiness;
