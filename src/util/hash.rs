//! A keyed hash whose values no client can predict.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
};

use siphasher::{sip::SipHasher13, sip128};

use super::random::random;

/// Hashes under a secret key of this process. A client that does not know the key
/// cannot choose two callers whose hashes are equal.
#[derive(Clone, Copy)]
pub(crate) struct SecretHasher(u64, u64);

impl Default for SecretHasher {
    /// Draws a key at random.
    fn default() -> Self {
        Self(random(), random())
    }
}

impl SecretHasher {
    /// Returns the hasher of a seed: the same in each process.
    #[cfg(all(feature = "redis", feature = "testing"))]
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Self(seed, !seed)
    }

    /// Returns the hash of a number.
    pub(crate) fn hash_number(&self, number: u64) -> u64 {
        self.hash_64((number, 0), 0, &[])
    }

    /// Returns 64 bits of a caller's key under one policy and algorithm.
    pub(crate) fn hash_64(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> u64 {
        let (first, second) = self.derive_keys(policy, kind);
        SipHasher13::new_with_keys(first, second).hash(key)
    }

    /// Returns 128 bits of a caller's key under one policy and algorithm.
    pub(crate) fn hash_128(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> (u64, u64) {
        let (first, second) = self.derive_keys(policy, kind);
        let hash = sip128::SipHasher13::new_with_keys(first, second).hash(key);
        (hash.h1, hash.h2)
    }

    /// Returns the key for one policy and algorithm.
    fn derive_keys(&self, policy: (u64, u64), kind: u8) -> (u64, u64) {
        (self.0 ^ policy.0, self.1 ^ policy.1 ^ u64::from(kind))
    }
}

/// A map from hashes of a [`SecretHasher`]. They are not hashed again: the row "one hot caller,
/// leased" lost 3 %.
pub(crate) type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<Hashed>>;

#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Debug for SecretHasher {
    /// Omits the key, with which a client could make the hashes of two callers equal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretHasher").finish_non_exhaustive()
    }
}
