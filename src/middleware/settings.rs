//! A built layer: what every request meets.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use http::HeaderValue;

use super::{
    layer::Answers,
    named::Named,
    policy::{Rule, When},
};
use crate::{Decision, Source, store::handle::BackedStore};

/// A built layer.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(super) store: BackedStore,
    pub(super) rules: Arc<[Rule]>,
    /// Which requests are limited at all.
    pub(super) when: Option<Named<When>>,
    pub(super) answers: Answers,
    /// How long a request may wait to be admitted.
    pub(super) wait: Option<Duration>,
    /// The most requests of this process that wait for one bucket.
    pub(super) max_waiting: usize,
    pub(super) partition_secret: Option<Secret>,
    /// `RateLimit-Policy` of a request to which all policies apply, where it never changes.
    pub(super) policy_field: Option<HeaderValue>,
    pub(super) logged: Arc<Logged>,
}

/// The mistakes of wiring that were logged.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) miswired: AtomicBool,
    pub(super) extension: AtomicBool,
}

impl Settings {
    /// Returns `RateLimit-Policy` for a decision, if it is the same for each of them.
    #[inline]
    pub(super) fn known_policy_field(&self, decision: &Decision) -> Option<&HeaderValue> {
        // The policies still hold while the store fails, though they are not listed.
        let is_constant = decision.source() == Source::StoreFailure
            || (decision.policies().len() == self.rules.len() && self.partition_secret.is_none());
        self.policy_field.as_ref().filter(|_| is_constant)
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
