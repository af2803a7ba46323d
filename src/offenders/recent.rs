//! The denials of a moment ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{DenialReason, Fingerprint};

/// The most denials that are kept.
pub(super) const LENGTH: usize = 256;

/// A request that a layer denied a moment ago, from
/// [`RateLimitLayer::recent_denials`](crate::RateLimitLayer::recent_denials).
///
/// It has neither the key of the caller nor the path and the query of the request: these hold
/// secrets and personal data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentDenial {
    /// When the request was denied, by the clock of this process.
    pub at: SystemTime,
    /// Why.
    pub reason: DenialReason,
    /// The policies that denied, or the one that found no key. Empty if the store failed or the
    /// application is misconfigured.
    pub policies: Vec<String>,
    /// The caller, as each of `policies` identifies it. Empty without a key.
    pub fingerprints: Vec<Fingerprint>,
    /// How long the caller should wait, as in `Retry-After`, but exact and without jitter.
    /// `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The method. `None` for methods that are neither in RFC 9110 nor `PATCH` or `QUERY`.
    pub method: Option<&'static str>,
    /// The route that axum matched, such as `/users/{id}`. `None` outside axum's `Router`, and
    /// without the feature `axum`.
    pub route: Option<String>,
}

impl RecentDenial {
    /// A denial of which only the reason is known.
    pub(crate) const fn new(reason: DenialReason) -> Self {
        Self {
            at: UNIX_EPOCH,
            reason,
            policies: Vec::new(),
            fingerprints: Vec::new(),
            retry_after: None,
            method: None,
            route: None,
        }
    }
}

pub(super) fn time(since_epoch_us: u64) -> SystemTime {
    // The clocks end in the year 2255.
    UNIX_EPOCH + Duration::from_micros(since_epoch_us)
}
