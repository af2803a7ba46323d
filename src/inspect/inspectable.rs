//! [`Inspectable`]: what has layers and limiters to look at.

use std::time::SystemTime;

use super::Inspect;
use crate::control::Control;

/// Something whose layers and limiters an operator can look at: a
/// [`RateLimitLayer`](crate::RateLimitLayer), a [`Limiter`](crate::Limiter), or all of a file.
///
/// A page for operators takes it, so that it needs not know what it shows. Implement it for what keeps
/// limits of your own, such as a layer for each tenant:
///
/// ```
/// use tower_throttle::{RateLimitLayer, TokenBucket, inspect::{Inspect, Inspectable}};
///
/// #[derive(Clone)]
/// struct Tenants(Vec<RateLimitLayer>);
///
/// impl Inspectable for Tenants {
///     fn inspect_all(&self) -> Vec<Inspect> {
///         self.0.iter().map(RateLimitLayer::inspect).collect()
///     }
/// }
///
/// let layer = || RateLimitLayer::new(TokenBucket::per_second(10));
/// assert_eq!(Tenants(vec![layer(), layer()]).inspect_all().len(), 2);
/// ```
pub trait Inspectable: Send + Sync + 'static {
    /// Returns all layers and limiters as they are now.
    fn inspect_all(&self) -> Vec<Inspect>;

    /// Returns the control document that they follow, if this knows it. They may begin to follow it by
    /// that, as the limits of a file do.
    fn control(&self) -> Option<Control> {
        None
    }

    /// Returns which version of a file is in force, if they are from a file.
    fn file_status(&self) -> Option<FileStatus> {
        None
    }
}

/// Which version of a file of limits is in force, and whether a newer one was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStatus {
    /// The number of the version: 1 for the one that the process started with.
    pub version: u64,
    /// A hash of the files of this version. `None` if it was not read from a file.
    pub hash: Option<String>,
    /// When this version was applied.
    pub applied_at: SystemTime,
    /// Since when the files as they are now are rejected. `None`: they are in force.
    pub rejected_since: Option<SystemTime>,
    /// Why they are rejected: all mistakes.
    pub problems: Vec<String>,
}

impl FileStatus {
    /// Returns the status of a version that was applied at this time. Set the other fields yourself.
    #[must_use]
    pub const fn new(version: u64, applied_at: SystemTime) -> Self {
        Self {
            version,
            hash: None,
            applied_at,
            rejected_since: None,
            problems: Vec::new(),
        }
    }
}
