//! Random numbers from a seed. Each test prints its seed; `TT_SEED` repeats a run. `TT_WALKS=all`
//! makes all random walks.

use std::hash::{BuildHasher, RandomState};

/// SplitMix64, by Steele, Lea and Flood (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Returns `TT_SEED`, or a new seed, and prints it.
pub fn seed() -> u64 {
    let seed = match std::env::var("TT_SEED") {
        Ok(seed) => seed.parse().expect("TT_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0_u8),
    };
    println!("TT_SEED={seed}");
    seed
}

/// Returns a quarter of these walks, or with `TT_WALKS=all` all of them. Each run has new seeds, so
/// the quarters of many runs differ.
pub fn walks(all: u64) -> u64 {
    match std::env::var("TT_WALKS") {
        Ok(walks) => {
            assert_eq!(walks, "all", "TT_WALKS");
            all
        }
        Err(_) => all.div_ceil(4),
    }
}

impl Random {
    /// Starts from [`seed`].
    pub fn new() -> Self {
        Self(seed())
    }

    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end - 1`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns `true` with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number from 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number from `least` to `most`, evenly over the magnitudes.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = ((least as f64).ln(), ((most + 1) as f64).ln());
        let number = (low + (high - low) * self.fraction()).exp() as u64;
        number.clamp(least, most)
    }

    /// Returns a number from 0 to `most`, evenly over the numbers of bits.
    pub fn bits_up_to(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(64 - most.leading_zeros()) + 1);
        let one = 1_u64 << bits.min(63);
        (one - 1 + self.below(one)).min(most)
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
