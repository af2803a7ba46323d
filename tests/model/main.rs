//! Both stores against a slow, obvious model, under one virtual clock: every
//! field of every decision is equal.
//!
//! Each test walks at random from a seed that it prints. To walk the same way
//! again: `TT_SEED=<the seed> cargo test --test model <the test>`.

#![allow(unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod algorithms;
mod bench;
mod found;
mod permits;
mod random;
mod rates;
mod sliding_error;
mod walk;
