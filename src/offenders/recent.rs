//! The denials of a moment ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;

use crate::{DenialReason, Fingerprint, policy_name::Name};

/// The most denials that are kept.
pub(super) const LENGTH: usize = 256;

/// The route of a request, as axum matched it.
#[cfg(feature = "axum")]
pub(crate) type Route = axum::extract::MatchedPath;
/// Nothing matches routes.
#[cfg(not(feature = "axum"))]
pub(crate) type Route = std::convert::Infallible;

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
    /// The caller, as each of `policies` identifies it. Empty if there is no key.
    pub fingerprints: Vec<Fingerprint>,
    /// How long the caller should wait, as in `Retry-After`, but exact and without jitter.
    /// `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The method. `None` for methods that are neither in RFC 9110 nor `PATCH` or `QUERY`.
    pub method: Option<&'static str>,
    /// The route that axum matched, such as `/users/{id}`. `None` outside of axum's `Router`,
    /// and without the feature `axum`.
    pub route: Option<String>,
}

/// A denial as it is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) at_us: u64,
    pub(crate) reason: DenialReason,
    pub(crate) policies: SmallVec<[(Name, Option<Fingerprint>); 1]>,
    pub(crate) details: Details,
}

/// What else is kept of a denied request.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) method: Option<&'static str>,
    pub(crate) route: Option<Route>,
}

impl Kept {
    fn to_public(&self) -> RecentDenial {
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
            route: self.details.route.as_ref().map(text),
        }
    }
}

#[cfg(feature = "axum")]
fn text(route: &Route) -> String {
    route.as_str().to_owned()
}

#[cfg(not(feature = "axum"))]
fn text(route: &Route) -> String {
    match *route {}
}

pub(super) fn time(since_epoch_us: u64) -> SystemTime {
    // The clocks end in the year 2255.
    UNIX_EPOCH + Duration::from_micros(since_epoch_us)
}

/// The last denials, in a ring.
#[derive(Debug)]
pub(super) struct Recent {
    kept: Vec<Kept>,
    /// The place of the next: of the oldest, once the ring is full.
    next: usize,
    /// How many there were, with those that are not kept any longer.
    count: u64,
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self {
            kept: Vec::new(),
            next: 0,
            count: 0,
        }
    }
    pub(super) fn push(&mut self, denial: Kept) {
        match self.kept.get_mut(self.next) {
            Some(oldest) => *oldest = denial,
            None => self.kept.push(denial),
        }
        self.next = (self.next + 1) % LENGTH;
        self.count += 1;
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the denials, the latest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = RecentDenial> {
        let newer = self.kept.iter().take(self.next).rev();
        let older = self.kept.iter().skip(self.next).rev();
        newer.chain(older).map(Kept::to_public)
    }
}
