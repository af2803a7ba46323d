//! Random numbers of the operating system.

use std::hash::{BuildHasher, RandomState};

/// Returns a number that cannot be predicted outside of this process.
pub(crate) fn random() -> u64 {
    // The standard library seeds its hasher from the system's randomness.
    RandomState::new().hash_one(0_u8)
}

/// Returns a random number from a range, so that processes that started together do not act
/// together.
pub(crate) fn random_between(least: f64, most: f64) -> f64 {
    let fraction = (random() >> 11) as f64 / (1_u64 << 53) as f64;
    least + (most - least) * fraction
}
