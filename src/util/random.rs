//! Random numbers of the operating system.

use std::hash::{BuildHasher, RandomState};

/// So that processes that started together do not act together.
pub(crate) fn random_between(least: f64, most: f64) -> f64 {
    let number = RandomState::new().hash_one(0_u8) >> 11;
    least + (most - least) * (number as f64 / (1_u64 << 53) as f64)
}
