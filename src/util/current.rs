//! A pointer to settings that may be replaced as a whole.

#[cfg(feature = "control")]
use std::{
    any::Any,
    sync::{OnceLock, Weak},
};
#[cfg(feature = "admin")]
use std::{
    fmt,
    hash::{Hash, Hasher},
};
use std::{ops::Deref, sync::Arc};

use arc_swap::{ArcSwap, Guard};

/// The settings that a layer or limiter and its clones have now.
#[derive(Debug)]
pub(crate) enum Current<T> {
    /// They never change: most are built in code. Reading them costs nothing.
    Fixed(Arc<T>),
    Replaceable(Arc<Replaceable<T>>),
}

/// Settings that are replaced as a whole, for all that share them.
#[derive(Debug)]
pub(crate) struct Replaceable<T> {
    settings: ArcSwap<T>,
    /// What replaces them, if it lives as long as they do.
    #[cfg(feature = "control")]
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Tells settings that may be replaced from all others, whatever version they have. It does not keep
/// them. No others get the same one while it exists.
#[cfg(feature = "admin")]
#[derive(Clone)]
pub(crate) struct SettingsId(Weak<dyn Any + Send + Sync>);

/// The settings at one moment. What is done with them sees no other version.
pub(crate) enum Loaded<'a, T> {
    Fixed(&'a Arc<T>),
    Replaceable(Guard<Arc<T>>),
}

/// Settings that are kept for longer, as while a caller waits.
pub(crate) enum Kept<'a, T> {
    Fixed(&'a T),
    Replaceable(Arc<T>),
}

impl<T> Current<T> {
    /// Holds settings that [`replace`](Self::replace) changes in all clones.
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn replaceable(settings: Arc<T>) -> Self {
        Self::Replaceable(Arc::new(Replaceable {
            settings: ArcSwap::new(settings),
            #[cfg(feature = "control")]
            kept: OnceLock::new(),
        }))
    }

    /// Returns what leads to the settings while something has them. `None`: they never change.
    #[cfg(feature = "control")]
    pub(crate) fn downgrade(&self) -> Option<Weak<Replaceable<T>>> {
        match self {
            Self::Fixed(_) => None,
            Self::Replaceable(shared) => Some(Arc::downgrade(shared)),
        }
    }

    /// Returns what tells the settings from others in all their versions. `None`: they never change.
    #[cfg(feature = "admin")]
    pub(crate) fn id(&self) -> Option<SettingsId>
    where
        T: Send + Sync + 'static,
    {
        self.downgrade().map(SettingsId::from)
    }

    /// Keeps something for as long as something has the settings. Once.
    #[cfg(feature = "control")]
    pub(crate) fn keep(&self, kept: Arc<dyn Any + Send + Sync>) {
        if let Self::Replaceable(shared) = self {
            shared.kept.get_or_init(|| kept);
        }
    }

    #[inline]
    pub(crate) fn load(&self) -> Loaded<'_, T> {
        match self {
            Self::Fixed(settings) => Loaded::Fixed(settings),
            Self::Replaceable(shared) => Loaded::Replaceable(shared.settings.load()),
        }
    }

    /// Returns whether these settings have not been replaced.
    pub(crate) fn is(&self, settings: &Arc<T>) -> bool {
        Arc::ptr_eq(&self.load(), settings)
    }

    /// Returns whether anything else has these settings, so that it follows their replacements.
    #[cfg(feature = "config")]
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Replaceable(settings) => Arc::strong_count(settings) > 1,
        }
    }

    /// Replaces the settings in all clones. Returns whether they can be replaced.
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn replace(&self, settings: Arc<T>) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Replaceable(shared) => {
                shared.settings.store(settings);
                true
            }
        }
    }
}

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Fixed(settings) => Self::Fixed(Arc::clone(settings)),
            Self::Replaceable(settings) => Self::Replaceable(Arc::clone(settings)),
        }
    }
}

#[cfg(feature = "admin")]
impl SettingsId {
    /// Returns the address, which stays taken while this exists.
    fn address(&self) -> usize {
        self.0.as_ptr().cast::<()>().addr()
    }
}

#[cfg(feature = "admin")]
impl<T: Send + Sync + 'static> From<Weak<Replaceable<T>>> for SettingsId {
    fn from(settings: Weak<Replaceable<T>>) -> Self {
        Self(settings)
    }
}

#[cfg(feature = "admin")]
impl PartialEq for SettingsId {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

#[cfg(feature = "admin")]
impl Eq for SettingsId {}

#[cfg(feature = "admin")]
impl Hash for SettingsId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

#[cfg(feature = "admin")]
impl fmt::Debug for SettingsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SettingsId({:#x})", self.address())
    }
}

impl<'a, T> Loaded<'a, T> {
    /// Returns what may be kept across an `.await`, which keeps no other thread from replacing the
    /// settings at its usual speed.
    pub(crate) fn keep(self) -> Kept<'a, T> {
        match self {
            Self::Fixed(settings) => Kept::Fixed(settings),
            Self::Replaceable(settings) => Kept::Replaceable(Guard::into_inner(settings)),
        }
    }
}

impl<T> Deref for Kept<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Fixed(settings) => settings,
            Self::Replaceable(settings) => settings,
        }
    }
}

impl<T> Deref for Loaded<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        match self {
            Self::Fixed(settings) => settings,
            Self::Replaceable(settings) => settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Current;

    #[test]
    fn all_clones_have_the_new_settings() {
        let current = Current::replaceable(Arc::new(1));
        let (clone, before) = (current.clone(), current.load());
        assert!(current.replace(Arc::new(2)));
        assert_eq!((**before, **clone.load()), (1, 2));
        assert!(!current.is(&before) && current.is(&clone.load()));
    }

    #[test]
    fn fixed_settings_stay() {
        let current = Current::Fixed(Arc::new(1));
        assert!(!current.replace(Arc::new(2)));
        assert_eq!(**current.load(), 1);
    }
}
