//! [`Extractor`]: an extractor that only its function tells from others.

use std::{any::type_name, sync::Arc};

use super::{HeadReader, Key, KeyError, KeySource, RequestHead};
use crate::{ConfigError, middleware::erased::Erased};

/// Made by the functions of this module, and by [`or`](super::KeyExtractor::or).
#[derive(Clone, Debug)]
#[must_use]
pub struct Extractor {
    pub(super) source: KeySource,
    /// Whether its settings are valid.
    pub(super) checked: Result<(), ConfigError>,
    pub(super) read: HeadReader<Result<Key, KeyError>>,
}

impl Extractor {
    pub(super) fn new<F>(source: KeySource, read: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Result<Key, KeyError> + Send + Sync + 'static,
    {
        Self {
            source,
            checked: Ok(()),
            read: Erased(Arc::new(read), type_name::<F>()),
        }
    }
}
