//! A built layer: what every request meets.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderValue;
use smallvec::SmallVec;

use super::{layer::Answers, policy::Rule, rejection::Refusal};
use crate::{
    Decision, Head, StoreError, fallback::BackedStore, key::KeyError, store::Leg, telemetry,
};

/// A built layer.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(super) store: BackedStore,
    pub(super) rules: Arc<[Rule]>,
    pub(super) answers: Answers,
    /// How long a request may wait to be admitted.
    pub(super) wait: Option<Duration>,
    pub(super) partition_secret: Option<Secret>,
    /// `RateLimit-Policy` of a request to which all policies apply, where it never changes.
    pub(super) policy_field: Option<HeaderValue>,
    /// It was logged.
    pub(super) is_miswired: Arc<AtomicBool>,
}

pub(super) type Asking<'a> = SmallVec<[Leg<'a>; 2]>;

/// The partition key of each leg, where they are wanted.
pub(super) type Partitions = Option<Box<[[u8; 12]]>>;

impl Settings {
    /// What the policies ask of a request, or why it is refused.
    #[inline]
    pub(super) fn ask<'a>(&'a self, head: &Head<'_>, legs: &mut Asking<'a>) -> Result<(), Refusal> {
        for rule in self.rules.iter() {
            match rule.ask(head) {
                Ok(Some(leg)) => legs.push(leg),
                Ok(None) => {}
                Err(error) => return Err(self.without_key(&error)),
            }
        }
        Ok(())
    }

    /// Whether there may be more to wait for than the store's answer, or what
    /// is taken must be given back.
    #[inline]
    pub(super) fn waits_for(&self, legs: &[Leg<'_>]) -> bool {
        let is_held = |leg: &Leg<'_>| leg.asked.quota.is_concurrency() || leg.asked.quota.paces();
        self.wait.is_some() || legs.iter().any(is_held)
    }

    /// Turns the store's answer into a decision to go on, or a refusal.
    #[inline]
    pub(super) fn decide(
        &self,
        answer: Result<Decision, StoreError>,
        partitions: Partitions,
    ) -> Result<Decision, Refusal> {
        match answer {
            Ok(mut decision) => {
                if let Some(partitions) = partitions {
                    // While the store fails, policies may be left out.
                    if decision.policies().len() == partitions.len() {
                        decision.give_partitions(&partitions);
                    }
                }
                if decision.is_allowed() {
                    return Ok(decision);
                }
                telemetry::denied(&decision);
                Err(Refusal::Denied(Box::new(decision)))
            }
            Err(_) => Err(Refusal::StoreFailed),
        }
    }

    #[cold]
    pub(super) fn without_key(&self, error: &KeyError) -> Refusal {
        match error.advice() {
            None => Refusal::KeyMissing,
            Some(advice) => {
                if !self.is_miswired.swap(true, Ordering::Relaxed) {
                    telemetry::miswired(advice);
                }
                Refusal::Miswired
            }
        }
    }

    pub(super) fn partitions(&self, legs: &[Leg<'_>]) -> Partitions {
        let secret = &self.partition_secret.as_ref()?.0;
        let partition = |leg: &Leg<'_>| {
            let mut hasher = blake3::Hasher::new_keyed(secret);
            hasher.update(leg.policy().as_bytes());
            // Names are printable: this byte ends them.
            hasher.update(&[0]);
            hasher.update(leg.key_bytes());
            let hash = hasher.finalize();
            hash.as_bytes()
                .first_chunk::<12>()
                .copied()
                .unwrap_or_default()
        };
        Some(legs.iter().map(partition).collect())
    }
}

/// Key material: never shown.
#[derive(Clone)]
pub(super) struct Secret(pub(super) [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
