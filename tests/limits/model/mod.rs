//! Both stores against a slow, obvious model, under one virtual clock: every field of every
//! decision is equal.
//!
//! Each test walks at random from a seed that it prints. To repeat a walk: `TT_SEED=<the seed>
//! cargo test --test limits <the test>`.

mod algorithms;
mod bench;
mod held_bound;
#[cfg(feature = "testing")]
mod holds;
mod permits;
mod rates;
mod sliding_error;
mod versions;
mod walk;
