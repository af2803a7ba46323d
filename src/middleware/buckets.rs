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

    /// What would be decided of this request at once, without a wait: a layer that
    /// [waits](crate::RateLimitLayerBuilder::wait_up_to), or a queue, may let it in later.
    /// Takes and writes nothing; `remaining` is what is left before the request.
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

    /// Forgets what this caller has taken. The buckets of everybody
    /// ([`Policy::shared`](crate::Policy::shared), [`key::global`](crate::key::global))
    /// are not the caller's, and stay; see [`reset_shared`](Self::reset_shared).
    ///
    /// A key that several callers have, as that of a method, a route, or of all who do
    /// not say who they are, is forgotten for all of them.
    ///
    /// # Errors
    ///
    /// The store could not be reached, so it may not have forgotten.
    pub async fn reset(&self) -> Result<(), StoreError> {
        self.forget(|leg| leg.key != Key::everyone()).await
    }

    /// Forgets what all callers together have taken from the buckets of everybody.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    pub async fn reset_shared(&self) -> Result<(), StoreError> {
        self.forget(|leg| leg.key == Key::everyone()).await
    }

    async fn forget(&self, which: impl Fn(&OwnedLeg) -> bool) -> Result<(), StoreError> {
        let legs = self.legs.iter().filter(|leg| which(leg));
        let legs: Vec<Leg<'_>> = legs.map(OwnedLeg::leg).collect();
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
