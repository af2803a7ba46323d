//! [`Extractor`], and keys made of other keys.

use std::{any::type_name, sync::Arc};

use super::{ClientIp, HeadReader, Key, KeyError, KeyExtractor, KeySource, RequestHead};
use crate::{ConfigError, middleware::erased::Erased};

/// Tags that no other key begins with.
const FIRST: u8 = b'/';
const SECOND: u8 = b'|';

pub(super) fn first_of(first: impl KeyExtractor, second: impl KeyExtractor) -> Extractor {
    let checked = first.validate().and_then(|()| second.validate());
    let source = KeySource::FirstOf(vec![first.source(), second.source()]);
    let read = move |head: &RequestHead<'_>| match first.extract(head) {
        Err(error) if error.is_missing() => match second.extract(head) {
            Ok(key) => Ok(Key::part(SECOND, &[]).and(&key)),
            Err(other) if other.is_missing() => Err(error.with_alternative(other)),
            misconfigured => misconfigured,
        },
        // The first is an alternative itself, so its keys get another tag.
        Ok(key) if matches!(key.as_bytes(), [SECOND | FIRST, ..]) => {
            Ok(Key::part(FIRST, &[]).and(&key))
        }
        answer => answer,
    };
    Extractor {
        checked,
        ..Extractor::new(source, read)
    }
}

impl KeyExtractor for Extractor {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        (self.read.0)(head)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.checked.clone()
    }

    fn source(&self) -> KeySource {
        self.source.clone()
    }
}

macro_rules! tuple_extractor {
    ($($name:ident),+) => {
        /// All of them together. The key is missing if one of them is.
        impl<$($name: KeyExtractor),+> KeyExtractor for ($($name,)+) {
            #[allow(non_snake_case)]
            fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
                let ($($name,)+) = self;
                Ok(Key::everyone()$(.and(&$name.extract(head)?))+)
            }

            #[allow(non_snake_case)]
            fn validate(&self) -> Result<(), ConfigError> {
                let ($($name,)+) = self;
                $($name.validate()?;)+
                Ok(())
            }

            #[allow(non_snake_case)]
            fn source(&self) -> KeySource {
                let ($($name,)+) = self;
                KeySource::All(vec![$($name.source()),+])
            }
        }
    };
}
tuple_extractor!(A, B);
tuple_extractor!(A, B, C);
tuple_extractor!(A, B, C, D);

/// Implements methods of the trait for the types themselves, so that no import is needed.
macro_rules! inherent_methods {
    ($($type:ty),+) => {
        $(
            impl $type {
                /// Reads the key of a request, for a [`Limiter`](crate::Limiter) in a handler. See
                /// [`KeyExtractor::extract`].
                ///
                /// # Errors
                ///
                /// Returns an error if the request has no key that is clear.
                pub fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
                    KeyExtractor::extract(self, head)
                }

                /// Uses `other` if this key is missing. See [`KeyExtractor::or`].
                pub fn or(self, other: impl KeyExtractor) -> Extractor {
                    first_of(self, other)
                }
            }
        )+
    };
}
inherent_methods!(Extractor, ClientIp);

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
