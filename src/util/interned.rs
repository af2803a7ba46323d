//! Pointers to values that every decision copies.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    ptr,
    sync::{Arc, Mutex},
};

use crate::util::lock::lock;

/// A pointer to a value that is configured once and copied with each request.
///
/// With an [`Arc`], all threads would write to its count with each request. So the first
/// [`MAX_STATIC`] different values of an [`InternTable`] are leaked, and copies of those
/// pointers are free.
pub(crate) enum Interned<T: 'static> {
    Static(&'static T),
    Shared(Arc<T>),
}

/// The most values of a table that are never freed.
const MAX_STATIC: usize = 256;

/// The values of one type that are never freed.
pub(crate) struct InternTable<T: 'static>(Mutex<Vec<&'static T>>);

impl<T: Eq> InternTable<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the pointer to a value that equals this one.
    pub(crate) fn intern(&self, value: T) -> Interned<T> {
        let mut values = lock(&self.0);
        if let Some(known) = values.iter().find(|known| ***known == value) {
            return Interned::Static(known);
        }
        if values.len() >= MAX_STATIC {
            return Interned::Shared(Arc::new(value));
        }
        let kept = Box::leak(Box::new(value));
        values.push(kept);
        Interned::Static(kept)
    }
}

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(value) => Self::Static(value),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<T: PartialEq> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq::<T>(&**self, &**other) || **self == **other
    }
}

impl<T: Eq> Eq for Interned<T> {}

impl<T: Hash> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Static(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Interned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
