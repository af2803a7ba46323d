//! [`Observe`]: an application's hook for each decision.

use std::{fmt, sync::Arc};

use super::snapshot::Requests;
use crate::{Decision, Source, StoreError, decision::DenialReason};

/// The outcome of a request. The [text](Self::as_str) of each is a value of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestResult {
    /// Admitted: every policy had room.
    Allowed,
    /// Denied, because a policy had no room.
    Denied,
    /// Denied, because the caller is banned: by a [`Penalty`](crate::Penalty), or by operators.
    Banned,
    /// Denied, because the cost exceeds what a policy can ever grant.
    Impossible,
    /// Denied, because the request lacks the key of a policy.
    KeyMissing,
    /// Denied, because the caller is on the deny list.
    Listed,
    /// Denied, because the store could not decide and a policy denies then.
    StoreFailed,
    /// Denied, because the application is misconfigured. In a limiter: an operation that its
    /// policies do not support.
    Misconfigured,
    /// Forwarded, because no policy applied.
    NotLimited,
    /// Forwarded, because the caller is on the allow list.
    Exempt,
    /// Dropped before it was decided.
    Cancelled,
}

impl RequestResult {
    /// Returns the value of the label `result`, such as `key_missing`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let mut names = Requests::default().by_result();
        names.nth(self as usize).map_or("", |(name, _)| name)
    }

    /// Returns what a decision makes of a request. A denial is counted by the reason that its response
    /// has.
    pub(super) fn of(decision: &Decision) -> Self {
        match decision.denial_reason() {
            Some(reason) => Self::of_denial(reason),
            None if decision.policies().len() > 0 => Self::Allowed,
            None => match decision.source() {
                Source::Store => Self::NotLimited,
                Source::List => Self::Exempt,
                _ => Self::Allowed,
            },
        }
    }

    pub(super) const fn of_denial(reason: DenialReason) -> Self {
        match reason {
            DenialReason::QuotaExceeded => Self::Denied,
            DenialReason::Banned => Self::Banned,
            DenialReason::CostImpossible => Self::Impossible,
            DenialReason::KeyMissing => Self::KeyMissing,
            DenialReason::Listed => Self::Listed,
            DenialReason::StoreFailed => Self::StoreFailed,
            DenialReason::Misconfigured => Self::Misconfigured,
        }
    }

    pub(super) fn of_error(error: &StoreError) -> Self {
        match error.is_unsupported() {
            true => Self::Misconfigured,
            false => Self::StoreFailed,
        }
    }
}

/// Receives each request of a layer, and each check of a limiter, after it was counted: for numbers
/// that a [`Snapshot`](super::Snapshot) does not have.
///
/// **The danger**: it runs in the path of the request, on the thread that decides it. It must
/// not block. If it panics, the request panics.
///
/// A [cancelled](RequestResult::Cancelled) request is observed in a destructor. If that runs because
/// the thread panics, the request is only counted: a second panic would end the process.
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU64, Ordering},
/// };
/// use tower_throttle::{
///     Limiter, TokenBucket,
///     metrics::{Observe, Observed},
/// };
///
/// /// Adds up the units that were charged.
/// #[derive(Debug, Default)]
/// struct Units(AtomicU64);
///
/// impl Observe for Units {
///     fn decided(&self, observed: &Observed<'_>) {
///         if let Some(decision) = observed.decision {
///             self.0.fetch_add(decision.charged(), Ordering::Relaxed);
///         }
///     }
/// }
///
/// let units = Arc::new(Units::default());
/// let limiter = Limiter::builder()
///     .policy(TokenBucket::per_minute(10))
///     .observe(Arc::clone(&units))
///     .build()?;
/// assert!(limiter.check_now("ann")?.is_allowed());
/// assert_eq!(units.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Observe: fmt::Debug + Send + Sync + 'static {
    /// A request was counted. Default: does nothing.
    fn decided(&self, observed: &Observed<'_>) {
        let _ = observed;
    }
}

impl<T: Observe + ?Sized> Observe for Arc<T> {
    fn decided(&self, observed: &Observed<'_>) {
        (**self).decided(observed);
    }
}

/// A request that was counted, for [`Observe::decided`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The name of the layer or limiter.
    pub limiter: &'a str,
    /// The outcome of the request.
    pub result: RequestResult,
    /// The decision with its policies. `None` without a decision: the key is missing, the
    /// application is misconfigured, the store failed, or the request was cancelled.
    pub decision: Option<&'a Decision>,
}
