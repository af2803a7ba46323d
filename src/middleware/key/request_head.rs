//! What an extractor, a cost or a condition may look at.

use std::fmt;

use http::{Extensions, HeaderMap, Method, Request, Uri, Version, request::Parts};

/// The head of a request, borrowed: everything but the body.
///
/// Its `Debug` shows the method and the names of the headers. Values, paths and
/// queries hold secrets.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI, as this layer is given it. Inside axum's `Router::nest("/api", ..)` it
    /// lacks `/api`; what the client sent is in the extensions there
    /// (`axum::extract::OriginalUri`), and [`matched_route`](super::matched_route)
    /// has all of the route.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The version of HTTP in which the request arrived.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The headers.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What earlier layers and the server left with the request.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", self.method)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<'a, B> From<&'a Request<B>> for RequestHead<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

/// For handlers, which have the parts of a request and not all of it.
impl<'a> From<&'a Parts> for RequestHead<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}
