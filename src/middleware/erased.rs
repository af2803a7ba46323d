//! Type-erased closures and extractors.

use std::{fmt, sync::Arc};

/// A type-erased closure or extractor, with the name of its type for `Debug`.
pub(crate) struct Erased<T: ?Sized>(pub(crate) Arc<T>, pub(crate) &'static str);

impl<T: ?Sized> Clone for Erased<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1)
    }
}

impl<T: ?Sized> fmt::Debug for Erased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}
