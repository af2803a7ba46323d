//! Keys that clients do not choose: an extension, the method, the route, one for all.

use std::{any::type_name, fmt, sync::Arc};

use super::{Key, KeyError, KeyExtractor, KeySource, RequestHead, error::Source};
use crate::{telemetry, util::absences::Absences};

/// Reads a key from a value that an earlier layer put into the request's extensions: an
/// authenticated user, a tenant. The key is missing without the value.
///
/// This is the key for credentials. Authentication has checked them, and they lead to one
/// value however the client spells them. The layer that inserts the value must run before
/// the limiter: in axum, add it after the limiter. The [module](super) shows both.
///
/// ```
/// use tower_throttle::key;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = key::extension(|user: &User| user.id);
/// ```
pub fn extension<T, F, R>(read: F) -> Extension<T>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: Into<Key>,
{
    Extension {
        read: Arc::new(move |value| read(value).into()),
        absences: Arc::default(),
    }
}

/// Made by [`extension`].
pub struct Extension<T> {
    read: Arc<dyn Fn(&T) -> Key + Send + Sync>,
    absences: Arc<Absences>,
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self {
            read: Arc::clone(&self.read),
            absences: Arc::clone(&self.absences),
        }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        match head.extensions().get::<T>() {
            Some(value) => {
                self.absences.record_presence();
                Ok((self.read)(value))
            }
            None => {
                let name = type_name::<T>();
                if head.is_sent() && self.absences.record_absence() {
                    telemetry::extension_missing(name);
                }
                Err(KeyError::missing_from(Source::Extension, Some(name)))
            }
        }
    }
}

/// Reads the method, as one part of a tuple: `(key::peer(), key::method())`.
///
/// Methods other than those of RFC 9110, `PATCH` and `QUERY` share one key. Otherwise
/// clients that invent methods would have a bucket for each.
#[must_use]
pub const fn method() -> MethodKey {
    MethodKey
}

/// Made by [`method`].
#[derive(Clone, Copy, Debug)]
pub struct MethodKey;

impl KeyExtractor for MethodKey {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(known_method(head).map_or_else(Key::missing, Key::from))
    }

    fn source(&self) -> KeySource {
        KeySource::Method
    }
}

/// Returns the method, if it is a usual one: clients may invent others.
pub(crate) fn known_method(head: &RequestHead<'_>) -> Option<&'static str> {
    let method = head.method().as_str();
    KNOWN_METHODS.into_iter().find(|known| *known == method)
}

const KNOWN_METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY",
];

/// Makes a key that all requests share.
#[must_use]
pub const fn global() -> Global {
    Global
}

/// Made by [`global`].
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::everyone())
    }

    fn source(&self) -> KeySource {
        KeySource::Everyone
    }
}

/// Reads the route that axum matched, as it was declared (`/users/{id}`): parameters of
/// the path do not make new keys.
///
/// Requests that match no route share one key. So do all requests if the layer is outside
/// of the `Router`, where no route is matched yet.
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
#[must_use]
pub const fn matched_route() -> MatchedRoute {
    MatchedRoute
}

/// Made by [`matched_route`].
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
#[derive(Clone, Copy, Debug)]
pub struct MatchedRoute;

#[cfg(feature = "axum")]
impl KeyExtractor for MatchedRoute {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(
            match head.extensions().get::<axum::extract::MatchedPath>() {
                Some(path) => Key::from(path.as_str()),
                None => Key::missing(),
            },
        )
    }

    fn source(&self) -> KeySource {
        KeySource::Route
    }
}
