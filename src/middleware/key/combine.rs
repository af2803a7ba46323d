//! Keys made of other keys.

use super::{
    BearerToken, ClientIp, Cookie, Extension, Global, Header, Key, KeyError, KeyExtractor,
    KeySource, MethodKey, Peer, RequestHead,
};
use crate::ConfigError;

/// One key, or another if the first is missing. Made by [`KeyExtractor::or`].
///
/// Keys of different alternatives never collide, because the key includes which one it is
/// from. So a client cannot act as another one by sending that one's address as a header.
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

/// Tags that no other key begins with.
const FIRST: u8 = b'/';
const SECOND: u8 = b'|';

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        match self.first.extract(head) {
            Err(error) if error.is_missing() => match self.second.extract(head) {
                Ok(key) => Ok(Key::part(SECOND, &[]).and(&key)),
                Err(other) if other.is_missing() => Err(error.with_alternative(other)),
                misconfigured => misconfigured,
            },
            // The first is an alternative itself, so its keys get another tag.
            Ok(key) if matches!(key.as_bytes(), [SECOND | FIRST, ..]) => {
                Ok(Key::part(FIRST, &[]).and(&key))
            }
            answer => answer,
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.first.validate()?;
        self.second.validate()
    }

    fn source(&self) -> KeySource {
        KeySource::FirstOf(vec![self.first.source(), self.second.source()])
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
    ($([$($generics:tt)*] $type:ty),+ $(,)?) => {
        $(
            impl<$($generics)*> $type {
                /// Reads the key of a request, for a [`Limiter`](crate::Limiter) in a handler. See
                /// [`KeyExtractor::extract`].
                ///
                /// # Errors
                ///
                /// Returns an error if the request has no key that is clear.
                pub fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError>
                where
                    Self: KeyExtractor,
                {
                    KeyExtractor::extract(self, head)
                }

                /// Uses `other` if this key is missing. See [`KeyExtractor::or`].
                pub fn or<Other: KeyExtractor>(self, other: Other) -> Or<Self, Other> {
                    Or::new(self, other)
                }
            }
        )+
    };
}
inherent_methods!(
    [] Header, [] BearerToken, [] Cookie, [T] Extension<T>, [] MethodKey, [] Global, [] Peer, [] ClientIp,
    [A, B] Or<A, B>,
);
#[cfg(feature = "axum")]
inherent_methods!([] super::MatchedRoute);
