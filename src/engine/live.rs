//! [`Live`]: settings that may be replaced while they are used.

use std::{fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};

use super::{Engine, replacement::Replacement};
use crate::{control::Subscriber, overrides::Overrides, policy::check_overrides};

/// The settings of a layer or limiter, with the engine that decides by them.
pub(crate) trait HasEngine: Send + Sync + 'static {
    /// Whether it is a layer or a limiter, for operators.
    fn kind(&self) -> &'static str;

    fn engine(&self) -> &Engine;

    /// Logs the parts of a control document that cannot have an effect here.
    fn warn_of(&self, _overrides: &Overrides) {}
}

impl HasEngine for Engine {
    fn kind(&self) -> &'static str {
        "limiter"
    }

    fn engine(&self) -> &Engine {
        self
    }
}

/// The settings of a layer or limiter, which may be replaced while they are used. Clones share
/// them.
pub(crate) struct Live<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.load().fmt(f)
    }
}

impl<T: HasEngine> Live<T> {
    pub(crate) fn new(settings: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(ArcSwap::new(settings.into())))
    }

    #[inline]
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
        let control = settings.engine().store.control().cloned();
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
        if let Some(control) = self.load().engine().store.control() {
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
        let name = engine.recorder.name();
        let conflicts = check_overrides(overrides, name, engine.policies.iter()).into_iter();
        conflicts
            .map(|error| format!("{} {name}: {error}", settings.kind()))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        self.load().engine().policy(name).is_some()
    }
}
