//! Keys that clients do not choose: an extension, the method, the route, one for all.

use std::any::type_name;

use super::{Key, KeyError, KeySource, RequestHead, combine::Extractor, error::Lack};
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
pub fn extension<T, F, R>(read: F) -> Extractor
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: Into<Key>,
{
    let absences = Absences::default();
    Extractor::new(KeySource::Application, move |head| {
        if let Some(value) = head.extensions().get::<T>() {
            absences.record_presence();
            return Ok(read(value).into());
        }
        let name = type_name::<T>();
        if head.is_sent() && absences.record_absence() {
            telemetry::extension_missing(name);
        }
        Err(KeyError::missing_from(Lack::Extension, Some(name)))
    })
}

/// Reads the method, as one part of a tuple: `(key::peer(), key::method())`.
///
/// Methods other than those of RFC 9110, `PATCH` and `QUERY` share one key. Otherwise
/// clients that invent methods would have a bucket for each.
pub fn method() -> Extractor {
    Extractor::new(KeySource::Method, |head| {
        Ok(known_method(head).map_or_else(Key::missing, Key::from))
    })
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
pub fn global() -> Extractor {
    Extractor::new(KeySource::Everyone, |_| Ok(Key::everyone()))
}

/// Reads the route that axum matched, as it was declared (`/users/{id}`): parameters of
/// the path do not make new keys.
///
/// Requests that match no route share one key. If the layer is outside the `Router`, where no route
/// is matched yet, all requests share that key.
#[cfg(feature = "axum")]
pub fn matched_route() -> Extractor {
    Extractor::new(KeySource::Route, |head| {
        let path = head.extensions().get::<axum::extract::MatchedPath>();
        Ok(path.map_or_else(Key::missing, |path| Key::from(path.as_str())))
    })
}
