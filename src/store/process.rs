//! The parts of a store on a server that are in this process.

use std::sync::Arc;

use crate::{Clock, charge::Charge, clock::SystemClock, util::hash::SecretHasher};

/// The clock and the secret hasher of this process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessContext {
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the store uses this clock, too. Then no time passes between the two.
    pub(crate) is_the_stores_clock: bool,
    pub(crate) hash: SecretHasher,
}

impl ProcessContext {
    /// `clock`: the store's clock, unless a server has its own.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            is_the_stores_clock: clock.is_some(),
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            hash: SecretHasher::default(),
        }
    }

    /// Returns 128 bits of a keyed hash of a bucket. Without the process's key, no client can make two
    /// callers collide.
    pub(crate) fn id(&self, charge: &Charge<'_>) -> (u64, u64) {
        let letter = charge.demand.quota.letter();
        self.hash
            .hash_128(charge.policy.hash, letter, charge.key_bytes())
    }
}
