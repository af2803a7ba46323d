//! The buckets that a request is held to, to look at and to reset.

use crate::{
    Decision, Key, StoreError,
    fallback::BackedStore,
    store::{Check, Leg, Operation, OwnedLeg},
};

/// What a request is held to, by
/// [`RateLimitLayer::buckets`](crate::RateLimitLayer::buckets).
#[derive(Clone, Debug)]
pub struct Buckets {
    store: BackedStore,
    legs: Vec<OwnedLeg>,
}

impl Buckets {
    pub(super) fn new(store: &BackedStore, legs: &[Leg<'_>]) -> Self {
        Self {
            store: store.clone(),
            legs: legs.iter().map(OwnedLeg::from).collect(),
        }
    }

    /// What the layer would decide now, of this request. Takes and writes nothing;
    /// `remaining` is what is left before the request.
    ///
    /// # Errors
    ///
    /// The store could not answer.
    pub async fn peek(&self) -> Result<Decision, StoreError> {
        let legs: Vec<Leg<'_>> = self.legs.iter().map(OwnedLeg::leg).collect();
        if legs.is_empty() {
            return Ok(Decision::of_no_policy());
        }
        let answer = self.store.check(&Check::new(Operation::Look, &legs));
        drop(legs);
        answer.wait().await
    }

    /// Forgets what this caller has taken. [Shared](crate::Policy::shared) buckets
    /// are not the caller's, and stay.
    ///
    /// # Errors
    ///
    /// The store could not be reached, so it may not have forgotten.
    pub async fn reset(&self) -> Result<(), StoreError> {
        let own = |leg: &&OwnedLeg| leg.key != Key::everyone();
        let legs: Vec<Leg<'_>> = self.legs.iter().filter(own).map(OwnedLeg::leg).collect();
        if legs.is_empty() {
            return Ok(());
        }
        let answer = self.store.reset(&legs);
        drop(legs);
        answer.wait().await
    }

    /// Their keys in Redis, one for each policy that applies, to look at them with
    /// `redis-cli`. Empty for stores without such keys.
    #[must_use]
    pub fn redis_keys(&self) -> Vec<String> {
        let keys = self.legs.iter();
        let keys = keys.filter_map(|leg| self.store.storage_key(&leg.leg()));
        keys.collect()
    }
}
