//! Closures and extractors, erased, that still say what they are.

use std::{fmt, sync::Arc};

/// A closure or extractor, erased, and the name of its type for `Debug`.
pub(super) struct Named<T: ?Sized>(pub(super) Arc<T>, pub(super) &'static str);

impl<T: ?Sized> Clone for Named<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1)
    }
}

impl<T: ?Sized> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}
