//! Values that every decision holds a copy of.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    ptr,
    sync::{Arc, Mutex},
};

use crate::util::lock::lock;

/// A value that is set up once and copied into each decision.
///
/// A counted pointer would be written to by all threads with each request, so
/// the first [`MOST`] different values of a [`Table`] stay for the life of the
/// process, and copies of them cost nothing.
pub(crate) enum Kept<T: 'static> {
    ForEver(&'static T),
    Counted(Arc<T>),
}

const MOST: usize = 256;

/// The values that stay.
pub(crate) struct Table<T: 'static>(Mutex<Vec<&'static T>>);

impl<T: Eq> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn keep(&self, value: T) -> Kept<T> {
        let mut values = lock(&self.0);
        if let Some(known) = values.iter().find(|known| ***known == value) {
            return Kept::ForEver(known);
        }
        if values.len() >= MOST {
            return Kept::Counted(Arc::new(value));
        }
        let kept = Box::leak(Box::new(value));
        values.push(kept);
        Kept::ForEver(kept)
    }
}

impl<T> Clone for Kept<T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::ForEver(value) => Self::ForEver(value),
            Self::Counted(value) => Self::Counted(Arc::clone(value)),
        }
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        ptr::eq::<T>(&**self, &**other) || **self == **other
    }
}

impl<T: Eq> Eq for Kept<T> {}

impl<T: Hash> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::ForEver(value) => value,
            Self::Counted(value) => value,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
