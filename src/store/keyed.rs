//! Which bucket a charge is of, as a number that nobody outside can foresee.

use std::fmt;

use siphasher::{
    sip,
    sip128::{Hash128, SipHasher13},
};

use crate::util::random::random;

/// A hash of 128 bits under a key of this process: whoever does not know it
/// cannot make two callers meet.
#[derive(Clone, Copy)]
pub(crate) struct KeyedHash(u64, u64);

impl KeyedHash {
    pub(crate) fn new() -> Self {
        Self(random(), random())
    }

    /// The same in each process.
    #[cfg(all(feature = "redis", feature = "testing"))]
    pub(crate) const fn of_seed(seed: u64) -> Self {
        Self(seed, !seed)
    }

    /// A number for this one, which nobody outside can foresee.
    pub(super) fn number(&self, of: u64) -> u64 {
        self.of((of, 0), 0, &[]).h1
    }

    #[cfg(feature = "redis")]
    #[inline]
    pub(super) fn of_leg(&self, charge: &super::Charge<'_>) -> (u64, u64) {
        let hash = self.of(
            charge.policy.hash,
            charge.demand.quota.letter(),
            charge.key_bytes(),
        );
        (hash.h1, hash.h2)
    }

    #[inline]
    pub(super) fn of(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> Hash128 {
        let (first, second) = self.keys(policy, kind);
        SipHasher13::new_with_keys(first, second).hash(key)
    }

    /// The same in 64 bits: faster, and as hard to foresee.
    #[inline]
    pub(super) fn of_64(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> u64 {
        let (first, second) = self.keys(policy, kind);
        sip::SipHasher13::new_with_keys(first, second).hash(key)
    }

    /// Each policy and algorithm hashes under a key of its own.
    #[inline]
    fn keys(&self, policy: (u64, u64), kind: u8) -> (u64, u64) {
        (self.0 ^ policy.0, self.1 ^ policy.1 ^ u64::from(kind))
    }
}

impl fmt::Debug for KeyedHash {
    /// Without the key, by which callers could be made to meet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedHash").finish_non_exhaustive()
    }
}
