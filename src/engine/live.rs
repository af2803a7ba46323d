//! [`Live`]: settings that may be replaced while they are used, and the [`Replacement`] that waits to
//! take effect.

use std::{fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};

use super::Engine;
use crate::{
    control::{Control, Subscriber},
    overrides::Overrides,
    policy::check_overrides,
};

/// The settings of a layer or limiter, with the engine that decides by them.
pub(crate) trait HasEngine: Send + Sync + 'static {
    /// Whether it is a layer or a limiter, for operators.
    fn kind(&self) -> &'static str;

    fn engine(&self) -> &Engine;

    /// Logs the parts of a control document that cannot have an effect here.
    fn warn_of(&self, _overrides: &Overrides) {}
}

/// The settings of a layer or limiter, which may be replaced while they are used. Clones share
/// them.
#[derive(Debug)]
pub(crate) struct Live<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: HasEngine> Live<T> {
    pub(crate) fn new(settings: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(ArcSwap::new(settings.into())))
    }

    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.0.load()
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Returns what lets other settings take effect. A check uses either the former settings or the
    /// new ones, from start to end.
    pub(crate) fn replacement(&self, settings: T) -> Replacement {
        let current = Arc::clone(&self.0);
        let control = settings.engine().store.control.clone();
        Replacement {
            controls: control.iter().cloned().collect(),
            swaps: vec![Box::new(move || {
                current.store(Arc::new(settings));
                if let Some(control) = control {
                    control.held().add(&current);
                }
            })],
        }
    }

    /// Has each version of the control document checked against the policies.
    pub(crate) fn subscribe(&self) {
        if let Some(control) = &self.load().engine().store.control {
            control.held().subscribe(&self.0);
        }
    }

    /// Returns whether there is a clone of these settings.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl<T: HasEngine> Subscriber for ArcSwap<T> {
    fn check(&self, overrides: &Overrides) -> Vec<String> {
        let settings = self.load();
        settings.warn_of(overrides);
        let engine = settings.engine();
        let name = &engine.recorder.name;
        let conflicts = check_overrides(overrides, name, engine.policies.iter()).into_iter();
        conflicts
            .map(|error| format!("{} {name}: {error}", settings.kind()))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        self.load().engine().policy(name).is_some()
    }
}

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
        self.controls.dedup_by(|one, other| one.is(other));
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

impl HasEngine for Engine {
    fn kind(&self) -> &'static str {
        "limiter"
    }

    fn engine(&self) -> &Engine {
        self
    }
}
