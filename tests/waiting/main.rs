//! Waiting to be admitted: order and moments, leaving early, permits in flight.

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

mod cancelling;
mod crowd;
mod given_back;
mod in_flight;
mod layer;
mod leaving;
mod lifetimes;
mod no_timer;
mod order;
mod redis;
mod sent;
mod served;
mod several_permits;
mod support;
mod too_long;
