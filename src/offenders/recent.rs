//! The denials of a moment ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;

use crate::{DenialReason, Fingerprint, policy_name::Name};

/// The most denials that are kept.
pub(super) const LENGTH: usize = 256;

/// A request that a layer denied a moment ago, from
/// [`RateLimitLayer::recent_denials`](crate::RateLimitLayer::recent_denials).
///
/// It has neither the key of the caller nor the path and the query of the request: these hold
/// secrets and personal data.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A denial as it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) at_us: u64,
    pub(super) reason: DenialReason,
    pub(super) policies: SmallVec<[(Name, Option<Fingerprint>); 1]>,
    pub(super) details: Details,
}

/// The other facts about a denied request.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) method: Option<&'static str>,
    #[cfg(feature = "axum")]
    pub(crate) route: Option<axum::extract::MatchedPath>,
}

impl Kept {
    pub(super) fn to_public(&self) -> RecentDenial {
        let names = self.policies.iter().map(|(name, _)| name.text.to_string());
        // Of all policies, or of none.
        let fingerprints = self.policies.iter().map(|(_, caller)| *caller);
        let fingerprints: Option<Vec<_>> = fingerprints.collect();
        RecentDenial {
            at: time(self.at_us),
            reason: self.reason,
            policies: names.collect(),
            fingerprints: fingerprints.unwrap_or_default(),
            retry_after: self.details.retry_after,
            method: self.details.method,
            #[cfg(feature = "axum")]
            route: {
                let route = self.details.route.as_ref();
                route.map(|route| route.as_str().to_owned())
            },
            #[cfg(not(feature = "axum"))]
            route: None,
        }
    }
}

pub(super) fn time(since_epoch_us: u64) -> SystemTime {
    // The clocks end in the year 2255.
    UNIX_EPOCH + Duration::from_micros(since_epoch_us)
}
