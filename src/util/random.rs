//! Random numbers.

use std::{
    hash::{BuildHasher, RandomState},
    process,
    time::SystemTime,
};

/// Returns a number that cannot be predicted outside this process, and that practically no other
/// process draws.
pub(crate) fn random() -> u64 {
    // The standard library reads the system's randomness once in each thread, and a fork copies what
    // it has read. So the process and the time are part of the number.
    RandomState::new().hash_one((process::id(), SystemTime::now()))
}

/// Returns a random number from a range, so that processes that started together do not act
/// together.
pub(crate) fn random_between(least: f64, most: f64) -> f64 {
    let fraction = (random() >> 11) as f64 / (1_u64 << 53) as f64;
    least + (most - least) * fraction
}
