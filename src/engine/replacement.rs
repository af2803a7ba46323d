//! [`Replacement`]: settings that wait to take effect.

use std::fmt;

use crate::control::Control;

/// Other settings for a layer or limiter, which were checked and have no effect yet: from
/// [`RateLimitLayer::prepare`](crate::RateLimitLayer::prepare) and
/// [`Limiter::prepare`](crate::Limiter::prepare).
///
/// If the settings of several layers and limiters change, prepare all of them, and
/// [apply](Self::apply) them only if none has a mistake:
///
/// ```
/// use tower_throttle::{ConfigError, Limiter, RateLimitLayer, TokenBucket};
///
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10));
/// let jobs = Limiter::builder().policy(TokenBucket::per_second(1)).build()?;
///
/// let change = |per_second| -> Result<(), ConfigError> {
///     let pages = RateLimitLayer::builder().policy(TokenBucket::per_second(per_second));
///     let pages = layer.prepare(&pages)?;
///     let jobs = jobs.prepare(&Limiter::builder().policy(TokenBucket::per_second(2)))?;
///     pages.and(jobs).apply();
///     Ok(())
/// };
/// assert!(change(10_000_000).is_err()); // nothing has changed
/// change(20)?;
/// # Ok::<(), ConfigError>(())
/// ```
#[must_use = "the settings take effect once they are applied"]
pub struct Replacement {
    pub(super) swaps: Vec<Box<dyn FnOnce() + Send>>,
    /// The control documents that apply on top of the settings.
    pub(super) controls: Vec<Control>,
}

impl Replacement {
    /// Adds other settings, which are applied together with these.
    pub fn and(mut self, other: Self) -> Self {
        self.swaps.extend(other.swaps);
        self.controls.extend(other.controls);
        self
    }

    /// Lets the settings take effect. A request uses either the former ones or the new ones, from
    /// start to end; layers and limiters change one right after the other.
    pub fn apply(self) {
        self.swaps.into_iter().for_each(|swap| swap());
        // Other policies may have other conflicts with its entries.
        for control in &self.controls {
            control.held().publish();
        }
    }
}

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacement").finish_non_exhaustive()
    }
}
