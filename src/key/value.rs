//! Keys that stand in the request: a header, a cookie, an extension, the route.

use std::{any::type_name, fmt, sync::Arc};

use http::{HeaderName, header::COOKIE};

use super::{Head, Key, KeyError, KeyExtractor};
use crate::ConfigError;

/// The value of the header of this name: its first line, byte for byte.
/// Missing where there is none or it is empty. (`host` is missing under HTTP/2, where
/// the URI has it.)
///
/// **The client chooses it.** See the [module](super).
#[must_use]
pub fn header(name: &str) -> Header {
    Header {
        given: name.into(),
        name: name.parse().ok(),
    }
}

/// Made by [`header`].
#[derive(Clone, Debug)]
pub struct Header {
    given: Arc<str>,
    name: Option<HeaderName>,
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        let name = self.name.as_ref().ok_or(KeyError::missing())?;
        match head.headers().get(name) {
            Some(value) if !value.is_empty() => Ok(Key::from(value.as_bytes())),
            _ => Err(KeyError::missing()),
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        match self.name {
            Some(_) => Ok(()),
            None => Err(ConfigError::HeaderName {
                name: self.given.to_string(),
            }),
        }
    }
}

/// The value of the first cookie of this name. Missing where there is none or
/// it is empty.
///
/// **The client chooses it.** See the [module](super).
#[must_use]
pub fn cookie(name: &str) -> Cookie {
    Cookie { name: name.into() }
}

/// Made by [`cookie`].
#[derive(Clone, Debug)]
pub struct Cookie {
    name: Arc<str>,
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        head.headers()
            .get_all(COOKIE)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .filter_map(|pair| {
                let mut halves = pair.splitn(2, |byte| *byte == b'=');
                Some((halves.next()?.trim_ascii(), halves.next()?.trim_ascii()))
            })
            .find(|(name, _)| *name == self.name.as_bytes())
            .filter(|(_, value)| !value.is_empty())
            .map(|(_, value)| Key::from(value))
            .ok_or(KeyError::missing())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        // A cookie name is a token, as a header name is, but its case counts.
        if HeaderName::from_bytes(self.name.as_bytes()).is_ok() {
            Ok(())
        } else {
            Err(ConfigError::CookieName {
                name: self.name.to_string(),
            })
        }
    }
}

/// A value that an earlier layer left in the request's extensions: an
/// authenticated user, a tenant. Missing where it is not there.
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
    }
}

/// Made by [`extension`].
pub struct Extension<T> {
    read: Arc<dyn Fn(&T) -> Key + Send + Sync>,
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self {
            read: Arc::clone(&self.read),
        }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        head.extensions()
            .get::<T>()
            .map(|value| (self.read)(value))
            .ok_or(KeyError::missing())
    }
}

/// The method, as one key of a tuple: `(key::peer(), key::method())`.
///
/// Methods other than those of RFC 9110, `PATCH` and `QUERY` share one key:
/// clients may invent any number of them, and would have a bucket for each.
#[must_use]
pub const fn method() -> MethodKey {
    MethodKey
}

/// Made by [`method`].
#[derive(Clone, Copy, Debug)]
pub struct MethodKey;

impl KeyExtractor for MethodKey {
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        Ok(match head.method().as_str() {
            known if KNOWN_METHODS.contains(&known) => Key::from(known),
            _ => Key::missing(),
        })
    }
}

const KNOWN_METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY",
];

/// One bucket for all requests together.
#[must_use]
pub const fn global() -> Global {
    Global
}

/// Made by [`global`].
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &Head<'_>) -> Result<Key, KeyError> {
        Ok(Key::everyone())
    }
}

/// The route that axum matched, as it was declared (`/users/{id}`), so that the
/// path's parameters do not make new callers.
///
/// Requests that match no route share one key. So do all requests if the layer
/// stands outside the `Router`, where there is no matched route yet.
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
    fn extract(&self, head: &Head<'_>) -> Result<Key, KeyError> {
        Ok(
            match head.extensions().get::<axum::extract::MatchedPath>() {
                Some(path) => Key::from(path.as_str()),
                None => Key::missing(),
            },
        )
    }
}
